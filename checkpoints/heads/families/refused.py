"""Model types that are refused by name: what their attention computes is not one OV and one QK per head."""

NO_ATTENTION = ("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm")
"""Types without attention heads."""

REFUSED = {
    "diffllama": "its heads pair up, a head is the difference of two patterns that read the values of both",
    "jetmoe": "its queries and outputs are chosen among experts, token by token",
}
