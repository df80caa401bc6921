# SPDX-License-Identifier: Apache-2.0
"""Networks of torchvision, timm, transformers and diffusers, from configurations: what they save is read, what is saved they load with
strict=True, and both give the same losses of held-out samples."""
import os
import subprocess

import numpy
import pytest

import weights_files
from jm import BUILD
from packages import Interpreter

# what each package calls the network whose options joulemark gets; two blocks and odd sizes
NETWORKS = """
import os, torch, numpy
from safetensors.torch import load_model, save_file
torch.set_num_threads(1)

def resnet(layers):
    import torchvision
    return getattr(torchvision.models, f"resnet{layers}")(num_classes=5)

def alexnet():
    import torchvision
    net = torchvision.models.AlexNet(5)
    net.classifier[1], net.classifier[4], net.classifier[6] = linears(9216)
    return net

def vgg16():
    import torchvision
    parts = [4, 4, "M", 8, 8, "M", 16, 16, 16, "M", 32, 32, 32, "M", 32, 32, 32, "M"]
    net = torchvision.models.VGG(torchvision.models.vgg.make_layers(parts), 5)
    net.classifier[0], net.classifier[3], net.classifier[6] = linears(49 * 32)
    return net

def xception():
    from timm.models.xception import Xception
    return Xception(num_classes=5)

def inception():
    import torchvision
    return torchvision.models.Inception3(5, init_weights=False)

def linears(width):
    return [torch.nn.Linear(width, 24), torch.nn.Linear(24, 24), torch.nn.Linear(24, 5)]

def timm_vit():
    from timm.models.vision_transformer import VisionTransformer
    return VisionTransformer(img_size=32, patch_size=8, num_classes=5, embed_dim=48, depth=2, num_heads=3, mlp_ratio=2)

def torchvision_vit():
    import torchvision
    return torchvision.models.VisionTransformer(32, 8, 2, 3, 48, 96, num_classes=5)

def gpt2():
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=24, n_embd=48, n_layer=2, n_head=3))

def gpt2_wide():
    from transformers import GPT2Config, GPT2LMHeadModel
    return GPT2LMHeadModel(GPT2Config(vocab_size=256, n_positions=24, n_embd=48, n_layer=2, n_head=3, n_inner=100, layer_norm_epsilon=0.05))

def llama():
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=2, max_position_embeddings=32, rms_norm_eps=1e-5, rope_theta=500000.0))

def llama3_2():
    from transformers import LlamaConfig, LlamaForCausalLM
    return LlamaForCausalLM(LlamaConfig(vocab_size=256, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
        num_attention_heads=6, num_key_value_heads=1, max_position_embeddings=32, rms_norm_eps=1e-5, rope_theta=10000.0,
        tie_word_embeddings=True, rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 16}))

def unet():
    from diffusers import UNet2DConditionModel
    return UNet2DConditionModel(sample_size=8, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16, 32, 32),
        attention_head_dim=(2, 4, 8, 8), cross_attention_dim=6, norm_num_groups=2, use_linear_projection=True)

def diffusion():
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel
    return torch.nn.ModuleDict({
        "unet": UNet2DConditionModel(sample_size=8, in_channels=3, out_channels=3, layers_per_block=1,
            block_out_channels=(8, 16, 32, 32), attention_head_dim=(2, 4, 8, 8), cross_attention_dim=6, norm_num_groups=2,
            use_linear_projection=True),
        "vae": AutoencoderKL(latent_channels=3, layers_per_block=1, block_out_channels=(4, 8, 16, 16), norm_num_groups=2,
            down_block_types=["DownEncoderBlock2D"] * 4, up_block_types=["UpDecoderBlock2D"] * 4),
        "text_encoder": CLIPTextModel(CLIPTextConfig(vocab_size=20, hidden_size=6, intermediate_size=24, num_hidden_layers=2,
            num_attention_heads=3, max_position_embeddings=5, hidden_act="gelu"))})

def network(kind):
    torch.manual_seed(11)
    net = resnet(kind[6:]) if kind.startswith("resnet") else globals()[kind]()
    with torch.no_grad():
        for name, p in [*net.named_parameters(), *net.named_buffers()]:
            if p.dtype.is_floating_point:  # zeros and ones would hide what is in the wrong place
                p.add_(0.1 * torch.rand_like(p) if p.dim() < 2 else 0.01 * torch.randn_like(p))
            elif name.endswith("num_batches_tracked"):
                p.fill_(7)
    return net

def loss(net, data, batch, seq):
    side = 224 if hasattr(net, "features") else 299 if hasattr(net, "AuxLogits") else 32
    net = net.double().eval()
    with torch.no_grad():
        if hasattr(net, "time_embedding"):
            return noise_loss(net, data, batch)
        if isinstance(net, torch.nn.ModuleDict):
            return picture_loss(net, data, batch)
        if seq > 1:
            ids = torch.tensor(numpy.fromfile(data, numpy.uint8, batch * seq + 1).astype(numpy.int64))
            logits = net(ids[:-1].reshape(batch, seq)).logits.flatten(0, 1)
            return torch.nn.functional.cross_entropy(logits, ids[1:]).item()
        pixels = torch.tensor(numpy.fromfile(data, "<f4", batch * 3 * side ** 2).reshape(batch, 3, side, side)).double()
        target = torch.tensor(numpy.fromfile(data, "<i4", batch, offset=4 * pixels.numel()).astype(numpy.int64))
        return torch.nn.functional.cross_entropy(net(pixels), target).item()

def noise_loss(net, data, batch):
    "Latents, noise, steps and captions; the noise is to be found."
    row = numpy.dtype([("x", "<f4", (batch, 3, 8, 8)), ("noise", "<f4", (batch, 3, 8, 8)), ("at", "<i4", batch),
                       ("caption", "<f4", (batch, 5, 6))])
    one = numpy.fromfile(data, row, 1)[0]
    return found_noise(net, one, one["x"].astype(float), torch.tensor(one["caption"].astype(float)))

def picture_loss(net, data, batch):
    "Pictures, tokens, what samples the moments, noise and steps."
    row = numpy.dtype([("image", "<f4", (batch, 3, 64, 64)), ("ids", "<i4", (batch, 5)), ("drawn", "<f4", (batch, 3, 8, 8)),
                       ("noise", "<f4", (batch, 3, 8, 8)), ("at", "<i4", batch)])
    one = numpy.fromfile(data, row, 1)[0]
    moments = net["vae"].encode(torch.tensor(one["image"].astype(float))).latent_dist
    x = 0.18215 * (moments.mean + moments.std * torch.tensor(one["drawn"].astype(float)))
    # torch 1.13 makes no causal mask in f64
    caption = net["text_encoder"].float()(torch.tensor(one["ids"].astype(numpy.int64)))[0].double()
    return found_noise(net["unet"], one, x.numpy(), caption)

def found_noise(net, one, x, caption):
    # where beta is 0, baddbmm of torch 1.13 multiplies by it what is in its result before: NaN at times
    torch.baddbmm = lambda _, q, k, beta, alpha: alpha * torch.bmm(q, k)
    kept = numpy.cumprod(1 - numpy.linspace(0.00085 ** 0.5, 0.012 ** 0.5, 1000) ** 2)[one["at"]][:, None, None, None]
    noisy = kept ** 0.5 * x + (1 - kept) ** 0.5 * one["noise"].astype(float)
    found = net(torch.tensor(noisy), torch.tensor(one["at"].astype(numpy.int64)), caption).sample
    return torch.nn.functional.mse_loss(found, torch.tensor(one["noise"].astype(float))).item()

def save(kind, folder, *data):
    "Saves theirs; its loss."
    net = network(kind)
    if isinstance(net, torch.nn.ModuleDict):
        for name, part in net.items():
            part.save_pretrained(f"{folder}/{name}", max_shard_size="60KB")
    elif hasattr(net, "save_pretrained"):
        net.save_pretrained(folder, max_shard_size="60KB")
    else:
        os.mkdir(folder)
        save_file(net.state_dict(), folder + "/model.safetensors")
    return loss(net, *data)

def load_parts(net, file):
    "Nothing but the decoder, which is not trained, is missing."
    from safetensors.torch import load_file
    tensors = load_file(file)
    for name, part in net.items():
        own = {key[len(name) + 1:]: t for key, t in tensors.items() if key.startswith(name + "/")}
        missing, unexpected = part.load_state_dict(own, strict=False)
        assert not unexpected, unexpected
        assert all(key.startswith(("decoder.", "post_quant_conv.")) or key.endswith("position_ids") for key in missing), missing

def load(kind, file, *data):
    "The loss of ours, and its counters of batches."
    net = network(kind)
    if isinstance(net, torch.nn.ModuleDict):
        load_parts(net, file)
    else:
        load_model(net, file, strict=True)
    return loss(net, *data), [*{b.item() for name, b in net.named_buffers() if name.endswith("num_batches_tracked")}]

def load_folder(folder, *data):
    "The loss of ours, which gives the configuration too."
    from transformers import AutoModelForCausalLM
    net, info = AutoModelForCausalLM.from_pretrained(folder, torch_dtype="auto", output_loading_info=True)
    assert not any(info.values()), info
    assert net.dtype == torch.float32
    return loss(net, *data)
"""
VIT = ("vit", {"layers": 2, "hidden": 48, "heads": 3, "ffn": 96, "image": 32, "patch": 8, "classes": 5}, 4, 1)
GPT2 = {"layers": 2, "hidden": 48, "heads": 3, "ffn": 192, "vocab": 256, "context": 24, "positions": "learned"}
KINDS = {
    "resnet18": ("resnet", {"layers": 18, "hidden": 64, "image": 32, "classes": 5}, 4, 1),
    "resnet50": ("resnet", {"layers": 50, "hidden": 64, "image": 32, "classes": 5}, 4, 1),
    "alexnet": ("convnet", {"layers": 8, "hidden": 64, "ffn": 24, "image": 224, "classes": 5}, 4, 1),
    "vgg16": ("convnet", {"layers": 16, "hidden": 4, "ffn": 24, "image": 224, "classes": 5}, 4, 1),
    "xception": ("separable", {"layers": 8, "hidden": 32, "image": 32, "classes": 5}, 4, 1),
    "inception": ("inception", {"hidden": 32, "image": 299, "classes": 5}, 4, 1),
    "unet": ("unet", {"hidden": 8, "layers": 1, "head-width": 4, "norm-groups": 2, "latent": 8, "latent-channels": 3, "caption": 5,
                      "caption-width": 6}, 2, 1),
    "diffusion": ("diffusion", {"hidden": 8, "layers": 1, "head-width": 4, "norm-groups": 2, "image": 64, "latent-channels": 3, "caption": 5,
                                "caption-width": 6, "vae-hidden": 4, "vae-layers": 1, "text-layers": 2, "text-heads": 3,
                                "vocab": 20}, 2, 1),
    "timm_vit": VIT,
    "torchvision_vit": VIT,
    "gpt2": ("gpt", GPT2, 2, 24),
    "gpt2_wide": ("gpt", {**GPT2, "ffn": 100, "norm-eps": 0.05}, 2, 24),
    "llama": ("llama", {"layers": 2, "hidden": 48, "heads": 6, "kv-heads": 2, "ffn": 80, "vocab": 256, "context": 32,
                        "theta": 500000}, 2, 32),
    "llama3_2": ("llama", {"layers": 2, "hidden": 48, "heads": 6, "kv-heads": 1, "ffn": 80, "vocab": 256, "context": 32,
                           "tied": "yes", "rope-factor": 8, "rope-low": 1, "rope-high": 4, "rope-context": 16}, 2, 32),
}
OF_FOLDERS = ["gpt2", "gpt2_wide", "llama", "llama3_2"]  # whose config.json gives the dimensions
STEPS = 2


@pytest.fixture(name="theirs", scope="module")
def their_packages():
    theirs = Interpreter("networks", NETWORKS)
    yield theirs
    theirs.close()


def make_data(path, kind):
    _, dims, batch, seq = KINDS[kind]
    side = dims.get("image")
    rng = numpy.random.default_rng(9)
    if kind == "unet":
        path.write_bytes(b"".join(
            rng.standard_normal((2, batch, 3, 8, 8)).astype("<f4").tobytes() + rng.integers(0, 1000, batch).astype("<i4").tobytes()
            + rng.standard_normal((batch, 5, 6)).astype("<f4").tobytes() for _ in range(STEPS)))
        return path
    if kind == "diffusion":
        path.write_bytes(b"".join(
            rng.standard_normal((batch, 3, 64, 64)).astype("<f4").tobytes() + rng.integers(0, 20, (batch, 5)).astype("<i4").tobytes()
            + rng.standard_normal((2, batch, 3, 8, 8)).astype("<f4").tobytes() + rng.integers(0, 1000, batch).astype("<i4").tobytes()
            for _ in range(STEPS)))
        return path
    if seq > 1:
        path.write_bytes(rng.integers(0, 256, (STEPS + 1) * batch * seq + 1, dtype=numpy.uint8).tobytes())
        return path
    steps = [rng.standard_normal((batch, 3, side, side)).astype("<f4").tobytes() + rng.integers(0, 5, batch).astype("<i4").tobytes()
             for _ in range(STEPS)]
    path.write_bytes(b"".join(steps))
    return path


def losses(kind, data, folder, steps, told=True, **env):
    """The loss of the first batch by joulemark, behind the steps, without training. told: of the dimensions."""
    model, dims, batch, seq = KINDS[kind]
    words = [BUILD / "tests/parity/losses", model, "cpu", "f32", steps, batch, seq, data, folder / "w", 1,
             *(f"{name}={value}" for name, value in dims.items() if told)]
    done = subprocess.run([*map(str, words)], check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={**os.environ, **{name: str(value) for name, value in env.items()}}, timeout=1000)
    assert done.returncode == 0, done.stderr
    return float((folder / "w.eval").read_text().split()[0])


@pytest.mark.parametrize("kind", KINDS)
def test_their_weights_give_their_loss(kind, theirs, tmp_path):
    _, _, batch, seq = KINDS[kind]
    data = make_data(tmp_path / "data", kind)
    expected = theirs.call("save", kind, tmp_path / "theirs", data, batch, seq)
    found = losses(kind, data, tmp_path, 0, JM_TEST_FROM=tmp_path / "theirs")
    assert found == pytest.approx(expected, rel=3e-5)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "torchvision_vit"])
def test_our_weights_load_with_strict_and_give_our_loss(kind, theirs, tmp_path):
    _, _, batch, seq = KINDS[kind]
    data = make_data(tmp_path / "data", kind)
    expected = losses(kind, data, tmp_path, STEPS, JM_TEST_SAVE=tmp_path / "ours.safetensors")
    loss, counters = theirs.call("load", kind, tmp_path / "ours.safetensors", data, batch, seq)
    assert loss == pytest.approx(expected, rel=3e-5)
    assert counters == ([2] if kind.startswith(("resnet", "xception", "inception")) else [])


def change_encoder(folder, change):
    """Tensors of the folder's VAE, as change(name, tensor) gives them."""
    file = folder / "vae/diffusion_pytorch_model.safetensors"
    weights_files.write(file, dict(change(*item) for item in weights_files.read(file).items()))


def test_a_pipeline_of_diffusers(theirs, tmp_path):
    """With the names of attention before diffusers 0.18, of another width, with NaN, and without a part."""
    old = {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}

    def rename(name, tensor):
        part = next((word for word in old if f"mid_block.attentions.0.{word}." in name), None)
        return (name.replace(part, old[part]) if part else name), tensor

    def spoil(name, tensor):
        return name, weights_files.tensor(weights_files.values(tensor) * numpy.float32("nan")) if "quant_conv" in name else tensor

    def narrow(name, tensor):
        return name, weights_files.tensor(weights_files.values(tensor)[:3].copy()) if name == "encoder.conv_in.bias" else tensor

    data, folder, names = make_data(tmp_path / "data", "diffusion"), tmp_path / "theirs", []
    expected = theirs.call("save", "diffusion", folder, data, 2, 1)
    change_encoder(folder, rename)
    change_encoder(folder, lambda name, tensor: (names.append(name) or name, tensor))
    assert "encoder.mid_block.attentions.0.proj_attn.bias" in names
    assert losses("diffusion", data, tmp_path, 0, JM_TEST_FROM=folder) == pytest.approx(expected, rel=3e-5)
    (folder / "text_encoder").rename(tmp_path / "elsewhere")
    with pytest.raises(AssertionError, match="lack tensor 'text_encoder/"):
        losses("diffusion", data, tmp_path, 0, JM_TEST_FROM=folder)
    (tmp_path / "elsewhere").rename(folder / "text_encoder")
    change_encoder(folder, spoil)
    with pytest.raises(AssertionError, match="'vae/quant_conv.* a value that is not a number"):
        losses("diffusion", data, tmp_path, 0, JM_TEST_FROM=folder)
    change_encoder(folder, narrow)
    with pytest.raises(AssertionError, match=r"'vae/encoder.conv_in.bias' of .* is \[3\], but in the network it is \[4\]"):
        losses("diffusion", data, tmp_path, 0, JM_TEST_FROM=folder)


@pytest.mark.parametrize("kind", OF_FOLDERS)
def test_their_folder_alone_gives_their_loss(kind, theirs, tmp_path):
    _, _, batch, seq = KINDS[kind]
    data = make_data(tmp_path / "data", kind)
    expected = theirs.call("save", kind, tmp_path / "theirs", data, batch, seq)
    assert losses(kind, data, tmp_path, 0, told=False, JM_TEST_FROM=tmp_path / "theirs") == pytest.approx(expected, rel=3e-5)


@pytest.mark.parametrize("kind", OF_FOLDERS)
def test_our_folder_is_a_pretrained_network(kind, theirs, tmp_path):
    """config.json, shards and index, without a word from us."""
    _, _, batch, seq = KINDS[kind]
    data = make_data(tmp_path / "data", kind)
    expected = losses(kind, data, tmp_path, STEPS, JM_TEST_SAVE=f"{tmp_path / 'ours'}/")
    assert len(list((tmp_path / "ours").glob("model-*.safetensors"))) > 2
    assert theirs.call("load_folder", tmp_path / "ours", data, batch, seq) == pytest.approx(expected, rel=3e-5)
