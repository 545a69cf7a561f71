"""The models of the table: one line each, and what must be set beyond the small sizes of `shrink`.

A line is the name of the row and the settings of the config; the row's name up to a comma is the model_type. An inner
config is reached by two underscores: text_config__num_hidden_layers.
"""

from typing import Any

MODELS: dict[str, dict[str, Any]] = {}


def _add(names: str) -> None:
    """Models that need nothing more than small sizes."""
    MODELS.update({name: {} for name in names.split()})


def _with(name: str, **settings: Any) -> None:
    MODELS[name] = settings


# language models that look backward
_add("""
    gpt2 gpt-sw3 openai-gpt ctrl gpt_neo gptj codegen gpt_neox gpt_neox_japanese opt
""")
_with("gptj", rotary_dim=4)
_with("codegen", rotary_dim=4)
_with("gpt_neo", num_layers=2, attention_types=[[["global", "local"], 1]])
_with("gpt_bigcode", multi_query=True)
_with("gpt_bigcode, many keys", multi_query=False)
_add("""
    bloom mpt persimmon xglm biogpt phi phi3 stablelm starcoder2 imagegpt
""")
_with("falcon, 7b", new_decoder_architecture=False, multi_query=True)
_with("falcon, 40b", new_decoder_architecture=True, num_kv_heads=2)
_with("falcon, rw", new_decoder_architecture=False, multi_query=False, num_kv_heads=4, alibi=True)
_add("""
    llama mistral ministral ministral3 mixtral qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next
""")
_with("llama, one key head", num_key_value_heads=1)
_with("llama, llama3 scaling", rope_parameters={
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
})  # fmt: skip
_with("llama, yarn", rope_parameters={
    "rope_type": "yarn", "rope_theta": 500.0, "factor": 4.0, "original_max_position_embeddings": 32,
})  # fmt: skip
_add("""
    olmo olmo2 olmo3 olmoe olmo_hybrid flex_olmo nanochat apertus arcee smollm3 granite granitemoe granitemoeshared
    granitemoehybrid gemma gemma2 gemma3_text gemma3n_text vaultgemma cohere cohere2 glm glm4 glm4_moe gpt_oss
    helium exaone4 ernie4_5 ernie4_5_moe seed_oss diffllama afmoe bitnet doge jetmoe nemotron
    hunyuan_v1_dense hunyuan_v1_moe minimax minimax_m2 phimoe lfm2 llama4_text cwm jais2 youtu solar_open
    eurobert deepseek_v2 deepseek_v3 minicpm3 longcat_flash glm4_moe_lite kimi_linear mimo_v2_flash axk1
    qwen3_5_text qwen3_5_moe_text nemotron_h jamba bamba falcon_h1 zamba2 recurrent_gemma mamba mamba2
    falcon_mamba rwkv xlstm
""")
_with("mamba2", num_heads=8, head_dim=8)
_with("helium", head_dim=8)
_with("jamba", attn_layer_period=2, attn_layer_offset=1)
_with("bamba", attn_layer_indices=[1])
_with("granitemoehybrid", layer_types=["mamba", "attention"])
_with("recurrent_gemma", block_types=["recurrent", "attention"])
_with("gemma3n_text", num_kv_shared_layers=0)
_with("zamba2", layers_block_type=["linear_attention", "hybrid"])
# encoders of text
_add("""
    bert roberta electra camembert xlm-roberta distilbert albert deberta deberta-v2 mpnet modernbert
    modernbert-decoder nomic_bert esm ernie roformer convbert megatron-bert rembert roberta-prelayernorm
    xlm-roberta-xl xmod layoutlm splinter big_bird longformer funnel xlnet mobilebert squeezebert ibert flaubert xlm
    canine luke tapas nystromformer fnet bros
""")
_with("esm", vocab_size=33)
_with("big_bird", attention_type="original_full")
# encoder and decoder
_add("""
    t5 mt5 umt5 longt5 switch_transformers bart mbart marian pegasus m2m_100 blenderbot blenderbot-small plbart mvp
    led bigbird_pegasus fsmt prophetnet nllb-moe t5gemma whisper speech_to_text moonshine time_series_transformer
    trocr udop
""")
_with("time_series_transformer", prediction_length=4, context_length=8)
# images and sound
_add("""
    vit deit dinov2 dinov2_with_registers dinov3_vit beit data2vec-vision vit_mae vit_msn ijepa yolos videomae vivit
    timesformer swin segformer pvt hiera resnet wav2vec2 hubert wavlm wav2vec2-bert wav2vec2-conformer
    audio-spectrogram-transformer sam
""")
_add("data2vec-audio")
_with("wav2vec2, norm before", do_stable_layer_norm=True)
# several towers
_add("""
    clip clip_text_model clip_vision_model siglip siglip2 altclip chinese_clip blip owlvit llava llava_next
    llava_onevision vipllava qwen2_vl qwen2_5_vl qwen3_vl gemma3 paligemma idefics idefics2 idefics3 smolvlm
    internvl mistral3 pixtral mllama llama4 aya_vision blip-2 instructblip qwen2_audio voxtral
    vision-encoder-decoder encoder-decoder
""")
