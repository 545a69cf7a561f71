"""One page per figure or claim: train or load, measure, find events, draw, judge. `registry` lists them."""
