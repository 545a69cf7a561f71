"""What a scalar is, by its name: a loss, a score, bookkeeping, or something that only its course can tell.

A loss falls, and where it climbs for good the training is lost; a score rises. Both are watched for transitions unless
somebody says otherwise (`detect_in`). Names are read word by word: "train/ce_loss", "evalAccuracy" and "nll" are what
they seem, "loss_scale" and "learning_rate" are settings of the training.
"""

import re

import numpy as np

_LOSSES = """loss losses ce xent crossentropy entropy nll bce mse mae rmse ppl perplexity objective error err kl elbo
bpc bpb bpd cost regret wer cer"""
_SCORES = """acc accs accuracy accuracies f1 auc auroc score scores reward rewards return returns bleu rouge r2 em iou
map top1 top5 precision recall mcc psnr ssim"""
_BOOKKEEPING = """scale scaler weight coef coefficient lr norm epoch step steps time seconds runtime mem memory tokens
samples count size gpu cpu temperature beta momentum decay rate progress throughput speed eta iteration iter"""

LOSSES, SCORES, BOOKKEEPING = (frozenset(names.split()) for names in (_LOSSES, _SCORES, _BOOKKEEPING))
_NOT_A_LOSS = BOOKKEEPING - {"rate", "step", "tokens", "time", "size"}  # error_rate, step_loss, loss_per_token(s) are

FEWEST = 50
"""Values after which the course of a scalar says whether it may be a loss."""


_HUMP, _BETWEEN = re.compile(r"(?<=[a-z0-9])(?=[A-Z])"), re.compile(r"[^a-zA-Z0-9]+")


def words(name: str) -> list[str]:
    """The words of a name, in small letters."""
    return [word for word in _BETWEEN.split(_HUMP.sub(" ", name).lower()) if word]


def role(name: str) -> str:
    """ "loss", "score", "bookkeeping" or "unknown"."""
    said = set(words(name))
    if said & LOSSES and not said & _NOT_A_LOSS:
        return "loss"
    if said & SCORES and not said & _NOT_A_LOSS:
        return "score"
    return "bookkeeping" if said & (BOOKKEEPING | LOSSES | SCORES) else "unknown"


def varies_like_a_loss(values: np.ndarray) -> bool:
    """Whether a course may be a loss or a score: it is no constant, no counter and no schedule.

    Of what is measured on batches neighbours go up and down; what only ever goes one way, or stands still in between,
    was set by somebody.
    """
    changes = np.diff(values)
    if len(values) < FEWEST or not changes.any():
        return False
    up, down = (changes > 0).mean(), (changes < 0).mean()
    return bool(min(up, down) > 0.1)
