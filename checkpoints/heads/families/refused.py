"""Model types that are refused by name: what their attention computes is not one OV and one QK per head."""

NO_ATTENTION = ("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm", "fnet")
"""Types without attention heads."""

REFUSED = {
    "diffllama": "its heads pair up, a head is the difference of two patterns that read the values of both",
    "jetmoe": "its queries and outputs are chosen among experts, token by token",
    "laguna": "what its heads write is multiplied by a number that depends on the data and is not between 0 and 1",
    "beam": "its queries are multiplied by a number that depends on the position",
    "deepseek_v4": "its keys are its values, compressed over several tokens, and outputs are mixed in groups of heads",
    "axk2": "its norms have networks of their own and its queries and gates are fused behind a down-projection",
    "inkling_text": "short convolutions over tokens stand between projections and heads",
    "zaya": "convolutions over tokens stand between projections and heads",
    "longcat_flash": "every layer has two attentions, with scales of their own",
    "xlnet": "scores have parts that depend on the query and on relative positions and segments",
    "convbert": "half of what it writes comes from convolutions, and queries and keys meet in fewer heads",
    "longformer": "it has other queries, keys and values for tokens that see everything",
    "funnel": "queries are pooled, and scores have parts that depend on relative positions",
    "mobilebert": "attention reads two bottlenecks of the stream, one for queries and keys and one for values",
    "squeezebert": "its projections are convolutions in groups",
    "ibert": "its weights are quantised as it runs",
    "luke": "it has other queries between words and entities",
    "nystromformer": "patterns come from those of landmarks, and a convolution is added to what heads write",
    "wavlm": "scores have a bias of the distance that a gate of the query multiplies",
    "rf_detr": "its decoder has another number of heads than its config says first",
    "reformer": "queries and keys are hashed into buckets, and share one projection",
    "zamba": "one block of attention is shared by several layers and reads the stream beside the embedding",
    "zamba2": "one block of attention is shared by several layers, with adapters, and reads the embedding too",
    "gemma4_assistant": "it has queries only, and reads the keys and values of another model",
    "gemma4_unified_assistant": "it has queries only, and reads the keys and values of another model",
}
