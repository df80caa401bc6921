# SPDX-License-Identifier: Apache-2.0
"""Faults of NVIDIA GPUs on a fake runtime: the backend's C code runs on host memory, with faults that a real GPU does not
have on demand. Each fault gives a clear message and status 125, and other cases continue."""
import json
import os
import pathlib
import re

import pytest

from fake_gpus import FakeGpus
from jm import jm

FAKES = pathlib.Path(os.environ["JM_BUILD"]) / "tests/peers"
pytestmark = pytest.mark.skipif(not (FAKES / "cuda-on-fakes.so").exists(), reason="needs the CUDA toolkit's headers")
COPY = ["run", "copy", "--size", "0.001", "--warmup", 1, "--steps", 5, "--json", "-"]


@pytest.fixture
def env(tmp_path):
    (tmp_path / "backends").mkdir()
    (tmp_path / "backends/cuda.so").symlink_to(FAKES / "cuda-on-fakes.so")
    return {"JM_BACKENDS": str(tmp_path / "backends"), "JM_CUBLASLT_LIB": str(FAKES / "libcublaslt-fake.so"),
            "JM_CUDNN_LIB": str(FAKES / "libcudnn-fake.so"), "JM_PLANS": str(tmp_path)}


def run(env, fakes, *words, device="cuda:0", source="null"):
    """The exit status and the records by device."""
    done = jm(*COPY, "--device", device, "--source", source, *words, env={**env, "JM_FAKE_CUDA": fakes})
    assert done.stdout, (done.returncode, done.stderr)
    found = json.loads(done.stdout)
    return done.returncode, {r["device"]: r for r in (found if isinstance(found, list) else [found])}


def refusal(env, fakes, **more):
    status, found = run(env, fakes, **more)
    r = found["cuda:0"]
    assert status == 125 and r["status"] == "failed" and r["exit_status"] == 125
    return r["reason"]


def doctor(env, fakes):
    done = jm("doctor", "--json", env={**env, "JM_FAKE_CUDA": fakes})
    assert done.returncode == 0, done.stderr
    return [f for f in json.loads(done.stdout) if f["member"] == "cuda" and f["section"] == "Compute"]


def test_the_fakes_run(env):
    status, found = run(env, "gpus=1")
    assert status == 0 and found["cuda:0"]["verified"] is True


def test_fast_is_in_the_record_and_another_case(env):
    plain, fast = (run(env, "gpus=1", *words)[1]["cuda:0"] for words in ([], ["--fast"]))
    assert fast["case"]["parameters"]["environment"] == {"JM_CUDA_FAST": "1"} and "environment" not in plain["case"]["parameters"]
    assert fast["case"]["id"] != plain["case"]["id"]


def test_no_driver(env):
    assert "no NVIDIA driver" in refusal(env, "count=35;driver=0")
    (row,) = doctor(env, "count=35;driver=0")
    assert not row["ok"] and "install the driver" in row["why"] and "--device cpu" in row["mend"]


def test_driver_too_old(env):
    text = refusal(env, "count=35")
    assert "CUDA 11.4" in text and "CUDA 13.0" in text and "update the driver" in text


def test_no_gpu_or_mig_without_an_instance(env):
    text = refusal(env, "count=100")
    assert "no GPU" in text and "MIG" in text and "nvidia-smi" in text


def test_a_device_that_is_not_there(env):
    status, found = run(env, "gpus=2", device="cuda:7,cuda:1")
    assert status == 125 and "cuda:7 does not exist" in found["cuda:7"]["reason"] and "2 GPUs" in found["cuda:7"]["reason"]
    assert found["cuda:1"]["status"] == "ok"


def test_unsupported_generation(env):
    text = refusal(env, "gpus=2;cc=75@0")
    assert "7.5" in text and "8.0 (Ampere)" in text
    rows = doctor(env, "gpus=3;cc=75@1")
    assert [(r["what"], r["ok"]) for r in rows] == [("device 0", True), ("device 1", False), ("device 2", True)]
    assert "7.5" in rows[1]["why"]


def test_memory_held_by_another(env):
    text = refusal(env, "open=2@0")
    assert "out of memory" in text and "nother process" in text and "nvidia-smi" in text


def test_most_of_the_memory_held_by_another(env):
    """The context can be created; the case's own memory is what does not fit. Another device goes on."""
    status, found = run(env, "held=81920", device="cuda:0,ref")
    assert status != 0 and "do not fit" in found["cuda:0"]["reason"] and "Another process" in found["cuda:0"]["reason"]
    assert found["ref"]["status"] == "ok"
    (row,) = doctor(env, "held=61440")  # of 80 GiB, so 20 GiB or 21.5 GB are free, less a reserve
    assert 20 < float(re.search(r"([0-9.]+) GB of memory free", row["why"]).group(1)) < 21.5


HELD = "Another process holds memory of the device"
GPT = "gpt-117m --seq 1024 --precision bf16 --source null --steps 1 --device cuda:0".split()


def on_all_ops(env, tmp_path, fakes, *words):
    """As run, with the backend's own ops, which plan programs; the records in the order of the cases."""
    (tmp_path / "plans").mkdir(exist_ok=True)
    if not (tmp_path / "plans/cuda.so").exists():
        (tmp_path / "plans/cuda.so").symlink_to(FAKES / "cuda-plans.so")
    done = jm("run", *words, "--json", "-", env={**env, "JM_BACKENDS": str(tmp_path / "plans"), "JM_FAKE_CUDA": fakes})
    found = json.loads(done.stdout)
    return done.returncode, found if isinstance(found, list) else [found]


def kind(r):
    return r["status"], r["exit_status"], r["failure"]


def test_memory_that_others_hold_is_a_fault_of_the_device(env, tmp_path):
    """Others hold 70 of 80 GiB: batch 48 would fit the empty GPU, batch 1024 would not."""
    status, (some, all_of_it) = on_all_ops(env, tmp_path, "held=71680", *GPT, "--batch", "48,1024")
    assert status == 125 and kind(some) == ("failed", 125, "device") and kind(all_of_it) == ("failed", None, "memory")
    held = float(re.search(HELD + r" \(([0-9.]+) GB at least", some["reason"]).group(1))
    assert 72 < held < 75.2 and "nvidia-smi" in some["reason"] and some["reason"].endswith("this case would fit.")
    assert all_of_it["reason"].endswith("this case would not fit either.")


def test_memory_that_nobody_holds_is_a_result(env, tmp_path):
    status, (empty,) = on_all_ops(env, tmp_path, "held=600", *GPT, "--batch", 1024)  # what a context takes
    assert status == 1 and kind(empty) == ("failed", None, "memory") and "nother process" not in empty["reason"]
    status, (own,) = on_all_ops(env, tmp_path, "held=71680", *GPT, "--batch", 32, "--memory", 1)
    assert status == 1 and kind(own) == ("failed", None, "memory") and "nother process" not in own["reason"]


def test_no_more_is_recomputed_than_memory_demands(env, tmp_path):
    """Between the plan that recomputes 1/16 % of a step and the one that recomputes all norms and activations, and below."""
    one, share, all_of_it = (on_all_ops(env, tmp_path, "held=600", *GPT, "--batch", 32, *words)[1][0]["plan"]["peak_bytes"]
                             for words in ([], ["--remake", 2], ["--keep-less"]))
    assert all_of_it < share < one
    for limit in (1.002 * share, 0.998 * one):
        _, (r,) = on_all_ops(env, tmp_path, "held=600", *GPT, "--batch", 32, "--memory", f"{limit / 1e9:.4f}")
        assert 0.98 * share < r["plan"]["peak_bytes"] <= limit
    for limit in (1.002 * all_of_it, 0.85 * all_of_it):  # attention and products, too
        _, (r,) = on_all_ops(env, tmp_path, "held=600", *GPT, "--batch", 32, "--memory", f"{limit / 1e9:.4f}")
        assert 0.9 * limit < r["plan"]["peak_bytes"] <= limit


def test_the_largest_batch_uses_the_memory_that_is_left(env, tmp_path):
    """Two samples do not fit; what one leaves keeps results that 1 % of a step would recompute."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    net = ["resnet50", "--device", "cuda:0", "--precision", "bf16", "--source", "null", "--steps", 1]
    two, least, one = (on_all_ops(env, tmp_path, "held=600", *net, *words)[1][0]["plan"]["peak_bytes"] for words in
                       (["--batch", 2, "--keep-less"], ["--batch", 1, "--remake", 1 / 16], ["--batch", 1]))
    assert one < least < two
    limit = ["--memory", f"{0.999 * two / 1e9:.4f}"]
    for batch, peak in (("max", least), (1, one)):
        _, (r,) = on_all_ops(env, tmp_path, "held=600", *net, "--batch", batch, *limit)
        assert (r["plan"]["batch"], r["plan"]["peak_bytes"]) == (1, peak)


def test_the_largest_batch_leaves_room_for_evaluations(env, tmp_path):
    """Two samples fit without the inputs of an evaluation, and not with them."""
    env["JM_FAKE_DNN_WORKSPACE"] = "1048576"
    net = ["resnet50", "--device", "cuda:0", "--precision", "bf16", "--source", "null", "--steps", 1, "--keep-less"]
    _, (two,) = on_all_ops(env, tmp_path, "held=600", *net, "--batch", 2)
    limit = two["plan"]["peak_bytes"] + 1e6
    _, (r, refused) = on_all_ops(env, tmp_path, "held=600", *net, "--batch", "max,2", "--memory", f"{limit / 1e9:.4f}", "--eval-every", 1)
    assert "Out of memory before the first step" in refused["reason"]
    assert r["plan"]["batch"] == 1 and r["plan"]["peak_bytes"] <= limit


def test_the_largest_batch_beside_another_process(env, tmp_path):
    _, (largest,) = on_all_ops(env, tmp_path, "held=61440", *GPT, "--batch", "max")
    assert HELD[:-11] in largest["note"] and "largest batch" in largest["note"]
    status, (none,) = on_all_ops(env, tmp_path, "held=81000", *GPT, "--batch", "max")
    assert status == 125 and kind(none) == ("failed", 125, "device") and HELD in none["reason"]


def test_a_product_beside_another_process(env, tmp_path):
    sides = ["--m", "8192,131072", "--n", 131072, "--k", 8192, "--precision", "bf16", "--source", "null", "--steps", 1]
    status, (some, all_of_it) = on_all_ops(env, tmp_path, "held=81000", "gemm", *sides, "--device", "cuda:0")
    assert status == 125 and kind(some) == ("failed", 125, "device") and HELD in some["reason"]
    assert kind(all_of_it) == ("failed", 125, "device")


def test_a_kernel_that_fails_is_named(env, tmp_path):
    """The error comes when the host waits. The short self-test knows the op, which is the only one that runs."""
    tiny = "gpt --layers 1 --hidden 16 --heads 2 --ffn 16 --context 8 --seq 8 --batch 1 --vocab 256 --steps 1".split()
    status, (lost, ref) = on_all_ops(env, tmp_path, "graphs=1;kernels=700@1", *tiny, "--source", "null", "--device", "cuda:0,ref")
    assert status == 125 and kind(lost) == ("failed", 125, "device") and ref["status"] == "ok"
    assert re.search(r"norm.* failed on cuda:0: .*outside its buffers", lost["reason"])


RESNET = "resnet18 --image 64 --batch 4 --steps 2 --warmup 0 --source null --selftest 0 --device cuda:0".split()
ALGORITHMS = {"JM_FAKE_DNN_WORKSPACE": "1048576", "JM_FAKE_LT_ALGORITHMS": "1"}


@pytest.mark.parametrize("precision", ["f32", "tf32", "bf16", "bf16-true", "fp16"])
def test_a_resnet_is_built_and_run(env, tmp_path, precision):
    """All its ways are timed, built and recorded; the kernels compute nothing, which its first loss shows."""
    status, (r,) = on_all_ops({**env, **ALGORITHMS}, tmp_path, "graphs=1", *RESNET, "--precision", precision)
    assert status == 1 and kind(r)[0] == "failed" and r["steps"] == 2 and r["throughput"] > 0
    assert r["verified"] is False and r["loss_first"] == 0 and "guessing one of 1000 classes" in r["verify_reason"]
    assert "way/91900," in (tmp_path / "cuda.plans").read_text()


def test_convolutions_that_end_with_bias_and_relu(env, tmp_path):
    """vgg11 in bf16: each convolution runs with its ReLU, and the gradient of each adds up that of a bias, together with that of the
    pooling behind it where there is one."""
    words = "vgg11 --hidden 16 --ffn 32 --image 224 --batch 1 --steps 2 --warmup 0 --source null --selftest 0 --device cuda:0 --precision bf16 --profile"
    _, (r,) = on_all_ops({**env, **ALGORITHMS}, tmp_path, "graphs=1", *words.split())
    assert r["steps"] == 2 and r["throughput"] > 0
    calls = {kind["name"]: kind["calls"] for kind in r["profile"]["kinds"]}
    assert calls["conv + relu"] == 8, calls  # the 9th is a product, which has no such end
    assert calls["maxpool-grad + relu-grad + conv-wgrad"] == 5 and calls["relu-grad + conv-wgrad"] >= 3, calls


def test_a_unet_makes_no_image_that_grows(env, tmp_path):
    """In bf16: its three convolutions of larger images have strides, and no copy of a filter or sum of a bias is a pass of its own."""
    words = "unet-sd2 --hidden 64 --latent 16 --batch 1 --caption 5 --caption-width 16 --precision bf16 --steps 2 --warmup 0 --source null"
    _, (r,) = on_all_ops({**env, **ALGORITHMS}, tmp_path, "graphs=1", *words.split(), "--selftest", 0, "--device", "cuda:0", "--profile")
    assert r["steps"] == 2 and r["throughput"] > 0
    calls = {kind["name"]: kind["calls"] for kind in r["profile"]["kinds"]}
    pairs = {"upsample + conv": 3, "upsample (again) + conv-wgrad": 3, "conv-dgrad + upsample-grad": 3,
             "upsample + add + groupnorm": 5, "upsample + add": 17, "add + groupnorm": 2, "conv + add": 22, "concat + groupnorm": 3,
             "groupnorm-grad + split": 12,
             "geglu-grad + geglu (again) + linear-wgrad": 16}
    assert {name: calls.get(name) for name in pairs} == pairs and "upsample" not in calls, calls
    assert calls["conv"] + 22 + 3 == 90 and calls["cast"] < 10, calls  # narrow layers have copies with padded rows


def test_norms_that_filters_of_each_channel_apply(env, tmp_path):
    """xception in bf16: neither the result of such a norm or ReLU nor its gradient is written by a pass of its own, nor is that of
    a norm which is pooled."""
    words = "xception --image 48 --batch 1 --steps 2 --warmup 0 --source null --selftest 0 --device cuda:0 --precision bf16 --profile"
    _, (r,) = on_all_ops({**env, **ALGORITHMS}, tmp_path, "graphs=1", *words.split())
    assert r["steps"] == 2 and r["throughput"] > 0
    calls = {kind["name"]: kind["calls"] for kind in r["profile"]["kinds"]}
    pairs = {"bn-apply + conv": 21, "bn-apply (again) + conv-wgrad": 21, "conv-dgrad + bn-grad": 23,
             "relu + conv": 11, "relu (again) + conv-wgrad": 11, "conv-dgrad + relu-grad + bn-grad": 11,
             "bn-apply + maxpool": 4, "maxpool-grad + bn-grad": 4}
    assert {name: calls.get(name) for name in pairs} == pairs, calls


def test_a_kernel_of_a_resnet_that_fails_is_named(env, tmp_path):
    status, (r,) = on_all_ops({**env, **ALGORITHMS}, tmp_path, "graphs=1;kernels=700@300", *RESNET, "--precision", "bf16")
    assert status == 125 and kind(r) == ("failed", 125, "device") and "outside its buffers" in r["reason"]


@pytest.mark.parametrize("kernel", [1, 3, 10])
def test_a_kernel_that_fails_while_a_choice_is_timed_is_no_lack_of_memory(env, tmp_path, kernel):
    """The error names the choice; nothing that was timed after the fault is kept."""
    fakes = f"graphs=1;kernels=700@{kernel}"
    status, (r,) = on_all_ops({**env, **ALGORITHMS, "JM_FAKE_LT_ALGORITHMS": "2"}, tmp_path, fakes, *RESNET, "--precision", "bf16")
    assert status == 125 and kind(r) == ("failed", 125, "device"), r["reason"]
    assert re.match(r"Timing [a-z -]+ by '.+' \([a-z]+/.+\) failed on cuda:0: .*outside its buffers.*please report", r["reason"]), r["reason"]
    assert "memory that" not in r["reason"] and "batch" not in r["reason"]


def test_plans_of_ways_that_no_longer_exist_are_made_again(env, tmp_path):
    """As a file of an older build: each choice is made again, and its line is added, which then counts."""
    env, plans = {**env, **ALGORITHMS}, tmp_path / "cuda.plans"
    before = on_all_ops(env, tmp_path, "graphs=1", *RESNET, "--precision", "bf16")[1][0]
    lines = [line.split() for line in plans.read_text().splitlines()]
    ways = {key: value.split(",")[0] for _, key, value in lines if key.startswith(("way/", "norm/"))}
    assert len(ways) > 5
    old = [(owner, key, re.sub("^[^,]*", "gone", value) if key in ways else value) for owner, key, value in lines]
    gone = (lines[0][0], "norm/gone/1,2", "gone,1e-09")
    plans.write_text("".join(" ".join(line) + "\n" for line in [*old, gone]))
    after = on_all_ops(env, tmp_path, "graphs=1", *RESNET, "--precision", "bf16")[1][0]
    assert after["steps"] == before["steps"] == 2 and after["failure"] == before["failure"]
    added = [line.split()[1:] for line in plans.read_text().splitlines()[len(lines) + 1:]]
    assert set(ways) <= {key for key, _ in added} and all(value.split(",")[0] != "gone" for _, value in added)


@pytest.mark.parametrize("words", [
    "vgg11 --hidden 16 --ffn 32 --image 224 --batch 1", "xception --image 48 --batch 1",
    "unet-sd2 --hidden 64 --latent 16 --batch 1 --caption 5 --caption-width 16", "resnet18 --image 64 --batch 4"])
def test_what_is_chosen_once_is_not_timed_again(env, tmp_path, words):
    """Nor is a choice whose key another one has, too: a second run adds no line to the plan cache."""
    words = [*words.split(), *"--steps 1 --warmup 0 --source null --selftest 0 --device cuda:0 --precision bf16".split()]
    kept = []
    for _ in range(2):
        on_all_ops({**env, **ALGORITHMS}, tmp_path, "graphs=1", *words)
        kept.append((tmp_path / "cuda.plans").read_text().splitlines())
    keys = [line.split()[1] for line in kept[0]]
    assert len(keys) == len(set(keys)) > 5
    assert kept[1] == kept[0]


@pytest.mark.parametrize("op", ["groupnorm", "hidden"])
@pytest.mark.parametrize("gpu", ["cc=86@0", "cc=120@0"])
def test_blocks_of_99_kb_suffice(env, tmp_path, op, gpu):
    """As those of GeForce have them, before clusters and with these. The kernels compute nothing, so that results are wrong."""
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans/cuda.so").symlink_to(FAKES / "cuda-plans.so")
    fakes = {"JM_BACKENDS": str(tmp_path / "plans"), "JM_FAKE_CUDA": f"graphs=1;{gpu};shared=99"}
    done = jm("selftest", "--device", "cuda:0", "--op", op, env={**env, **ALGORITHMS, **fakes})
    assert op in done.stdout and "failed on cuda:0" not in done.stderr, done.stderr


@pytest.mark.parametrize("name", ["fno-rbc2d", "fno-rbc3d"])
def test_a_fourier_operator_is_built_and_run(env, tmp_path, name):
    """The kernels compute nothing, which its loss shows."""
    words = [name, "--batch", 1, "--steps", 2, "--warmup", 0, "--source", "null", "--selftest", 0, "--device", "cuda:0"]
    status, (r,) = on_all_ops({**env, **ALGORITHMS}, tmp_path, "graphs=1", *words)
    assert status == 0 and r["steps"] == 2 and r["throughput"] > 0
    assert r["loss_first"] == r["loss_last"] == 0
    status, (r,) = on_all_ops({**env, **ALGORITHMS}, tmp_path, "graphs=1;kernels=700@30", *words)
    assert status == 125 and kind(r) == ("failed", 125, "device") and "outside its buffers" in r["reason"]


def test_taken_in_exclusive_mode(env):
    assert "compute mode" in refusal(env, "open=46@0")


@pytest.mark.parametrize("code, says", [(214, "ECC"), (700, "outside its buffers"), (719, "Xid")])  # all: test_cuda_errors.c
def test_a_gpu_that_is_lost_in_mid_run(env, code, says):
    """The 70th copy, one of the second step, fails; the record tells what there was until then, and another device goes on."""
    status, found = run(env, f"gpus=2;copies={code}@70", device="cuda:0")
    r = found["cuda:0"]
    assert status == 125 and r["status"] == "failed" and r["exit_status"] == 125 and says in r["reason"]
    assert any(p["name"] == "setup" for p in r["phases"])


def test_other_devices_go_on_when_one_is_lost(env):
    status, found = run(env, "copies=214@12", device="cuda:0,ref")
    assert status == 125 and "ECC" in found["cuda:0"]["reason"] and found["ref"]["status"] == "ok"


@pytest.mark.parametrize("device, rank", [("cuda:0,cuda:7", 1), ("cuda:7,cuda:0", 0)])
def test_a_rank_whose_device_is_not_there(env, device, rank):
    tiny = "gpt --layers 1 --hidden 16 --heads 2 --ffn 16 --context 8 --seq 8 --batch 1 --vocab 256 --ranks 2".split()
    done = jm("run", *tiny, "--steps", 1, "--source", "null", "--device", device, "--json", "-",
              env={**env, "JM_FAKE_CUDA": "gpus=1"})
    r = json.loads(done.stdout)
    assert done.returncode == 125 and r["exit_status"] == 125
    assert f"Rank {rank}" in r["reason"] and "cuda:7 does not exist" in r["reason"]


def test_doctor_tells_what_a_gpu_computes(env):
    (row,) = doctor(env, "gpus=1")
    assert row["ok"] and "GPU-00000000-fa4e" in row["why"] and "GB of memory free" in row["why"]
    for word in ("f32", "tf32", "bf16", "9.0", "driver of CUDA 13.0", "cuBLASLt 13.1.0", "cuDNN 9.19.0"):
        assert word in row["why"], row["why"]


def test_cudnn_missing_or_of_another_version(env, tmp_path):
    (row,) = doctor({**env, "JM_FAKE_DNN_VERSION": "90100"}, "gpus=1")
    assert row["ok"] and "no convolutions" in row["why"] and "9.1" in row["why"] and "9.14" in row["why"]
    (row,) = doctor({**env, "JM_CUDNN_LIB": str(tmp_path / "nothing.so")}, "gpus=1")
    assert row["ok"] and "cannot be loaded" in row["why"] and "JM_CUDNN_LIB" in row["why"]
    (row,) = doctor({**env, "JM_CUDNN_LIB": str(FAKES / "libcublaslt-fake.so")}, "gpus=1")
    assert "has no function cudnn" in row["why"]


def test_cublaslt_missing_or_of_another_version(env, tmp_path):
    assert "11.4" in refusal({**env, "JM_FAKE_LT_VERSION": "110400"}, "gpus=1")
    assert "JM_CUBLASLT_LIB" in refusal({**env, "JM_CUBLASLT_LIB": str(tmp_path / "nothing.so")}, "gpus=1")


def test_the_uuid_finds_the_meter(env, tmp_path):
    """CUDA's order is not NVML's: device 1 of CUDA is GPU 0 of NVML."""
    fake = FakeGpus(tmp_path, 4, "wave=const;power=300")
    fake.env.update(env)
    status, found = run(fake.env, "gpus=4;order=2031", device="cuda:1", source="nvml")
    r = found["cuda:1"]
    assert status == 0 and r["ran_on"]["uuid"].startswith("GPU-00000000-fa4e") and r["ran_on"]["bus"] == "0000:1a:00.0"
    own = [m for m in r["meters"] if m["scope"] == "gpu" and not m.get("elsewhere")]
    assert [m["id"] for m in own] == [r["ran_on"]["meter"]] and "GPU 0" in own[0]["label"]


# ---- copies between two GPUs


def peers(env, fakes, *words, device="cuda:0,cuda:1", source="null"):
    status, found = run(env, fakes, *words, device=device, source=source)
    return status, found[device]


@pytest.mark.parametrize("way, directions, late", [("to-peer", 1, ""), ("both-peers", 2, ""), ("both-peers", 2, ";late=1")])
def test_copies_between_gpus_arrive(env, way, directions, late):
    status, r = peers(env, "gpus=2" + late, "--way", way)
    assert status == 0 and r["verified"] is True and r["unit"] == "GB" and r["devices"] == 2
    assert r["items"] == pytest.approx(r["steps"] * 64 * 0.001 * directions)
    assert r["peer"]["device"] == "cuda:1" and r["peer"]["uuid"].startswith("GPU-10000001-fa4e") and r["peer"]["access"] is True


@pytest.mark.parametrize("way, gpu", [("to-peer", 1), ("both-peers", 0), ("both-peers", 1)])
def test_a_copy_that_loses_a_byte_is_found(env, way, gpu):
    status, r = peers(env, f"gpus=2;lost={gpu}", "--way", way)
    assert status != 0 and r["verified"] is False and f"GPU-{gpu}000000{gpu}" in r["reason"] and "differs" in r["reason"]


@pytest.mark.parametrize("code, access", [(0, False), (711, False), (704, True)])
def test_the_record_tells_whether_gpus_access_each_other(env, code, access):
    """0: the driver does not allow it; 711: it has no room for more; 704: it is enabled already."""
    status, r = peers(env, f"gpus=2;peers={code}", "--way", "to-peer")
    assert status == 0 and r["verified"] is True and r["peer"]["access"] is access


def test_access_between_gpus_that_fails(env):
    status, r = peers(env, "gpus=2;peers=999", "--way", "to-peer")
    assert status == 125 and "Access to another GPU failed on cuda:0" in r["reason"]


@pytest.mark.parametrize("device, says", [("cuda:0,cuda:0", "are one device"), ("cuda,cuda:0", "are one device"),
                                          ("cuda:0,ref", "two NVIDIA GPUs"), ("cuda:0,cuda:7", "cuda:7 does not exist")])
def test_devices_that_are_no_peers(env, device, says):
    status, r = peers(env, "gpus=2", "--way", "to-peer", device=device)
    assert status == 125 and r["exit_status"] == 125 and says in r["reason"]


@pytest.mark.parametrize("way, device, says", [
    ("to-peer", "cuda:0", "uses 2 devices, and --device names 1"), ("both-peers", "cuda:0,cuda:1,cuda:2", "--device names 3"),
    ("to-host,to-peer", "cuda:0,cuda:1", "--way to-host uses 1 device, and --device names 2")])
def test_copies_between_gpus_need_two(env, way, device, says):
    done = jm(*COPY, "--way", way, "--device", device, env={**env, "JM_FAKE_CUDA": "gpus=3"})
    assert done.returncode == 2 and says in done.stderr


def test_an_instance_of_mig_is_told(env, tmp_path):
    """Its UUID is none of NVML's GPUs; the bus address is."""
    fake = FakeGpus(tmp_path, 1, "wave=const;power=300")
    done = jm(*COPY, "--device", "cuda:0", "--source", "nvml", env={**fake.env, **env, "JM_FAKE_CUDA": "gpus=1;mig=1"})
    r = json.loads(done.stdout)
    assert done.returncode == 0 and r["ran_on"]["slice"] is True and r["ran_on"]["meter"]
    assert "(MIG): power and energy are those of the whole GPU" in done.stderr


def test_the_energy_of_both_gpus_counts_once(env, tmp_path):
    """CUDA's devices 1 and 2 are GPUs 0 and 3 of NVML."""
    fake = FakeGpus(tmp_path, 4, "wave=const;power=300")
    fake.env.update(env)
    status, r = peers(fake.env, "gpus=4;order=2031", "--way", "both-peers", "--seconds", 0.5, device="cuda:1,cuda:2", source="nvml")
    own = {m["label"][:5]: m["joules"] for m in r["meters"] if m["scope"] == "gpu" and not m.get("elsewhere")}
    assert status == 0 and set(own) == {"GPU 0", "GPU 3"} and all(joules > 0 for joules in own.values())
    assert r["total"]["joules_measured"] == pytest.approx(sum(own.values()))
    assert r["throughput_per_device"] == pytest.approx(r["throughput"] / 2)
