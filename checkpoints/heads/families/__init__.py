"""The families that are known, by kind. A new one is one entry in one of these files and one line of test."""

from checkpoints.heads.families.decoders import DECODERS
from checkpoints.heads.families.encoder_decoder import ENCODER_DECODERS
from checkpoints.heads.families.encoders import ENCODERS
from checkpoints.heads.families.fused import FUSED
from checkpoints.heads.families.latent import LATENT
from checkpoints.heads.families.libraries import LIBRARIES
from checkpoints.heads.families.refused import NO_ATTENTION, REFUSED
from checkpoints.heads.families.vision import TEXT_BESIDE_IMAGES, VISION

FAMILIES = (*FUSED, *DECODERS, *LATENT, *ENCODERS, *ENCODER_DECODERS, *VISION, *TEXT_BESIDE_IMAGES, *LIBRARIES)

__all__ = ["FAMILIES", "NO_ATTENTION", "REFUSED"]
