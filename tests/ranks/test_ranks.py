# SPDX-License-Identifier: Apache-2.0
"""run --ranks: several processes train like a single one."""
import json
import os
import re
import resource
import time

import pytest

from gangs import ENDS_S, GPT, devices, losses, two_fake_devices  # pylint: disable=unused-import
from jm import BUILD, USAGE, jm, sentence
from runs import FAILED, one, records

RESNET = ["run", "resnet18", "--image", "32", "--classes", "10", "--warmup", "0", "--source", "null"]
GAPS = 0.04  # matrices, which are small here, begin at lines of 128 bytes; the gaps before them are sent, too


def train(work, ranks, batch, *more, device="ref", steps=3):
    wanted = ["--ranks", ranks] if ranks > 1 else []
    return one(*work, "--device", device, "--batch", batch // ranks, "--steps", steps, *wanted, *more)


@pytest.mark.parametrize("device", ["ref", "cpu"])
@pytest.mark.parametrize("more", [[], ["--accumulate", "2"]], ids=["", "accumulate"])
def test_losses_are_those_of_one_rank(device, more):
    alone = train(GPT, 1, 6, *more, device=device)
    for ranks in 2, 3:
        together = train(GPT, ranks, 6, *more, device=device)
        assert losses(together) == pytest.approx(losses(alone), rel=2e-6)
        assert together["items"] == alone["items"]
        assert together["flops_model_per_item"] == pytest.approx(alone["flops_model_per_item"])


def test_losses_agree_in_bf16_true():
    """Of matrices gradients are bf16, with one rank and with several, whose sum is rounded once more."""
    alone, together = (train(GPT, n, 6, "--precision", "bf16-true", "--lr", "0.01") for n in (1, 3))
    assert losses(together) == pytest.approx(losses(alone), rel=1e-3)


def test_losses_in_f64_agree_to_its_rounding():
    alone, together = (train(GPT, ranks, 6, "--precision", "f64") for ranks in (1, 3))
    assert losses(together) == pytest.approx(losses(alone), rel=1e-12)


def test_accumulated_micro_steps_are_as_ranks():
    """Two ranks do at once what one does in two micro-steps; batch norm sees the same batches."""
    alone = train(RESNET, 1, 4, "--accumulate", "2", "--images", "fresh", device="cpu", steps=3)
    together = train(RESNET, 2, 8, "--images", "fresh", device="cpu", steps=3)
    assert losses(together) == pytest.approx(losses(alone), rel=2e-5)


def test_batch_norm_is_of_each_rank():
    """Statistics over half of the batch are others: close to those of all, but not the same."""
    alone, together = (train(RESNET, ranks, 16, device="cpu", steps=1) for ranks in (1, 2))
    assert losses(together)[0] == pytest.approx(losses(alone)[0], rel=0.1)
    assert losses(together)[0] != losses(alone)[0]


def test_the_same_bits_again():
    assert losses(train(GPT, 3, 6, device="cpu")) == losses(train(GPT, 3, 6, device="cpu"))


@pytest.mark.parametrize("more", [["--precision", "f32"], ["--precision", "f64", "--shard-update", "off"]], ids=str)
def test_over_tcp_the_same_bits(more):
    """Both transports add in the order of the ranks, whatever is sent to whom."""
    shared, sent = (train(GPT, 3, 6, *more, *transport) for transport in ([], ["--transport", "net"]))
    assert losses(sent) == losses(shared)
    assert (shared["communication"]["transport"], sent["communication"]["transport"]) == ("local", "net")


@pytest.fixture(name="two_ranks", scope="module")
def record_of_two_ranks():
    return train(GPT, 2, 4, device="cpu")


def test_ranks_have_one_record(two_ranks):
    assert two_ranks["status"] == "ok" and two_ranks["verified"] is True
    assert two_ranks["options"]["ranks"] == "2" and len(two_ranks["phases"]) == 4


def test_a_record_names_its_ranks(two_ranks):
    gang = two_ranks["gang"]
    assert (gang["world"], gang["rank"], gang["launcher"]) == (2, 0, "local")
    assert [rank["device"] for rank in gang["ranks"]] == ["cpu", "cpu"]


def test_ranks_of_one_device_are_one_device(two_ranks):
    assert two_ranks["devices"] == 1


def test_items_are_those_of_all_ranks(two_ranks):
    assert two_ranks["items"] == 3 * 4 * 32


def test_a_record_has_the_bytes_and_the_time_of_the_sums(two_ranks):
    sums = two_ranks["communication"]
    assert sums["transport"] == "local" and sums["buckets"] >= 1 and sums["exposed_s_per_step"] > 0
    assert sums["bytes_per_step"] == pytest.approx(4 * two_ranks["plan"]["parameters"], rel=GAPS)


def test_a_profile_gives_exchanges_a_time_alone():
    """They go on while other nodes run, so that neither bytes/s nor a share of the memory's speed describes them."""
    kinds = {kind["name"]: kind for kind in train(GPT, 2, 4, "--profile", device="cpu")["profile"]["kinds"]}
    exchanges = [kind for name, kind in kinds.items() if name.endswith(("-start", "-wait"))]
    assert len(exchanges) >= 2 and all(kind["seconds"] >= 0 for kind in exchanges)
    assert {(kind["bytes_per_s"], kind["roofline"]) for kind in exchanges} == {(None, None)}
    assert kinds["linear"]["bytes_per_s"] > 0 and kinds["linear"]["roofline"] > 0


def test_sizes_of_buckets():
    """Few large sums or many small ones: the same bytes, and the same losses up to rounding."""
    found = [train(GPT, 2, 4, *more, steps=3) for more in ([], ["--bucket", "0.01"], ["--bucket", "1000"])]
    sums = [r["communication"] for r in found]
    assert [s["buckets"] for s in sums[::2]] == [1, 1] and sums[1]["buckets"] > 4
    assert len({s["bytes_per_step"] for s in sums}) == 1
    assert losses(found[1]) == pytest.approx(losses(found[0]), rel=1e-6)


def updated(how, work, ranks, *more, batch=6, device="ref", **kwargs):
    return train(work, ranks, batch, "--clip", "0", "--shard-update", how, *more, device=device, **kwargs)


@pytest.mark.parametrize("device, ranks, more", [
    ("cpu", 2, []),
    ("ref", 3, ["--bucket", "0.01", "--precision", "bf16"]),
    ("cpu", 2, ["--accumulate", "2", "--precision", "bf16", "--keep-all"]),
    ("ref", 2, ["--precision", "f64", "--optimizer", "sgd", "--bucket", "0.003"]),
    ("cpu", 3, ["--precision", "fp8", "--recompute"]),
    ("cpu", 3, ["--precision", "bf16-true"]),
    ("ref", 2, ["--precision", "bf16-true", "--optimizer", "sgd", "--bucket", "0.003"]),
], ids=str)
def test_a_sharded_update_gives_the_same_bits(device, ranks, more):
    """Transport local adds in the order of the ranks in both; segments that are not multiples of the ranks, and tensors
    across their borders."""
    whole, shared = (updated(how, GPT, ranks, *more, device=device) for how in ("off", "on"))
    assert losses(shared) == losses(whole)
    assert shared["communication"]["shard_update"] is True and whole["communication"]["shard_update"] is False
    assert whole["communication"]["gathered_bytes_per_step"] == 0
    assert shared["communication"]["bytes_per_step"] == pytest.approx(whole["communication"]["bytes_per_step"], rel=GAPS)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
def test_a_table_larger_than_blocks_gives_the_same_bits(precision):
    """Gradients of matrices are computed after those of the table, so that its sum does not come last."""
    work = ["2048" if word == "256" else word for word in GPT]
    whole, shared = (updated(how, work, 2, "--bucket", "0.15", "--precision", precision, "--keep-all", batch=2)
                     for how in ("off", "on"))
    assert losses(shared) == losses(whole)


def test_a_sharded_update_of_filters_gives_the_same_bits():
    whole, shared = (updated(how, RESNET, 2, "--precision", "bf16", batch=4, device="cpu", steps=2) for how in ("off", "on"))
    assert losses(shared) == losses(whole)


def test_a_sharded_update_needs_less_memory_and_sends_copies_in_16_bits():
    """Of AdamW's two moments half is kept; of the matrices of the blocks only the copies are gathered."""
    work = ["128" if before == "--hidden" else word for before, word in zip(["", *GPT], GPT)]
    whole, shared = (updated(how, work, 2, "--precision", "bf16", batch=2, steps=1) for how in ("off", "on"))
    bytes_of_all = whole["communication"]["bytes_per_step"]
    matrices = 2 * 12 * 128 * 128 * 4  # of two blocks
    assert shared["communication"]["gathered_bytes_per_step"] == pytest.approx(bytes_of_all - matrices / 2, rel=0.01)
    whole, shared = (updated(how, work, 2, batch=2, steps=1)["plan"]["persistent_bytes"] for how in ("off", "on"))
    assert whole - shared == pytest.approx(bytes_of_all / 2, rel=0.01)  # two halves of moments, less a half of sums


@pytest.mark.parametrize("how", ["on", "off"])
def test_without_masters_gradients_are_sent_and_kept_in_16_bits(how):
    """Those of matrices; vectors are one percent of this network. Kept: parameters, gradients and two moments of 2 bytes; with a
    sharded update half of the moments, and the own half of the sums."""
    work = ["128" if before == "--hidden" else word for before, word in zip(["", *GPT], GPT)]
    found = updated(how, work, 2, "--precision", "bf16-true", batch=2, steps=1)
    assert found["communication"]["bytes_per_step"] == pytest.approx(2 * found["plan"]["parameters"], rel=0.05)
    assert found["plan"]["persistent_bytes"] == pytest.approx(found["plan"]["parameters"] * (7 if how == "on" else 8), rel=0.05)


def test_a_sharded_update_clips_by_the_norm_of_all_shares():
    """The norms of the shares are rounded before they are joined, so the last bits may differ."""
    whole, shared = (train(GPT, 3, 6, "--shard-update", how, "--clip", "0.1", device="cpu") for how in ("off", "on"))
    unclipped = updated("on", GPT, 3, device="cpu")
    assert losses(shared) == pytest.approx(losses(whole), rel=1e-6)
    assert losses(unclipped)[1] != pytest.approx(losses(whole)[1], rel=1e-6)


def test_all_ranks_skip_a_sharded_update_that_overflows():
    whole, shared = (updated(how, GPT, 2, "--precision", "fp16", "--loss-scale", "dynamic:1e9", batch=2, steps=8)
                     for how in ("off", "on"))
    assert shared["loss_scale"]["steps_skipped"] > 0
    assert shared["loss_scale"] == whole["loss_scale"] and losses(shared) == losses(whole)


def test_evaluations_see_all_shares():
    found = [updated(how, GPT, 2, "--precision", "bf16", "--eval-every", "1", "--eval-batches", "1", batch=2, device="cpu", steps=2)
             for how in ("off", "on")]
    whole, shared = ([e["loss"] for e in r["evaluations"]] for r in found)
    assert len(whole) == 2 and shared == whole


@pytest.mark.parametrize("device, ranks, precision", [("cpu", 2, "bf16"), ("ref", 3, "f32")])
def test_what_is_saved_has_all_shares(device, ranks, precision, tmp_path):
    for how in "off", "on":
        record = updated(how, GPT, ranks, "--precision", precision, "--save", tmp_path / how, device=device)
        assert record["communication"]["shard_update"] is (how == "on")
    assert (tmp_path / "on").read_bytes() == (tmp_path / "off").read_bytes()


@pytest.mark.parametrize("more, reason", [
    ([], None),
    (["--checkpoint", "c", "--ema", "0.9"], None),
    (["--shard-update", "off"], "--shard-update is off"),
    (["--precision", "fp8-true"], "matrices in 8 bits have no copies that could be gathered"),
    (["--device", "later:0,later:1", "--precision", "bf16-true", "--transport", "host"],
     "without f32 masters transport host has no copies to gather behind the tables")], ids=str)
def test_the_plan_and_the_record_say_why_the_update_is_not_sharded(two_devices, tmp_path, more, reason):
    more = more if "--device" in more else ["--device", "ref", *more]
    out = tmp_path / "r.json"
    done = jm(*GPT, "--ranks", "2", "--batch", "1", "--steps", "1", *more, "--json", out, cwd=tmp_path, env=two_devices)
    assert done.returncode == 0
    said = f"each rank updates all parameters, because {reason}" if reason else "each rank updates its share of the parameters"
    assert said in " ".join(done.stderr.split()), done.stderr
    sums = json.loads(out.read_text())["communication"]
    assert sums["shard_update"] is (reason is None) and sums.get("whole_update_reason") == reason


def test_a_sharded_update_is_not_in_eight_bits():
    r = one(*GPT, "--ranks", "2", "--device", "ref", "--precision", "fp8-true", "--shard-update", "on", "--batch", "1",
            "--steps", "1", status=FAILED)
    assert "--shard-update on does not go with --precision fp8-true; omit it." in r["reason"]


def test_energy_is_counted_once():
    """A source that any process may read: rank 0 alone samples it."""
    alone, together = (train([*GPT[:-2], "--source", "sim:h100x4"], n, 4, "--seconds", "1") for n in (1, 2))
    assert len(together["meters"]) == len(alone["meters"])
    watts = [sum(m["watts_mean"] for m in r["meters"] if not m["covered_by"]) for r in (alone, together)]
    assert watts[0] > 0 and watts[1] == pytest.approx(watts[0], rel=0.2)


def test_ranks_is_an_axis(tmp_path):
    store = tmp_path / "s.db"
    done = jm(*GPT, "--device", "ref", "--batch", "2", "--steps", "1", "--ranks", "1,2", "--store", store)
    assert done.returncode == 0, done.stderr
    assert sorted(r["options"]["ranks"] for r in records(store)) == ["1", "2"]


@pytest.mark.parametrize("args, hint", [
    (["--ranks", "0"], "1 to 512"),
    (["--ranks", "3", "--device", "ref,ref"], "2 devices for 3 ranks"),
    (["--ranks", "2", "--device", "ref,rif"], "rif"),
])
def test_wrong_usage(args, hint):
    assert hint in sentence(jm(*GPT, *args), USAGE)


@pytest.mark.parametrize("work, option, value", [
    (GPT, "transport", "host"), (GPT, "transport", "auto"), (GPT, "shard-update", "on"), (GPT, "shard-update", "off"),
    (GPT, "bucket", 1), (["run", "allreduce"], "transport", "nccl"), (["run", "allgather"], "transport", "host")])
def test_what_ranks_exchange_by_needs_ranks(work, option, value):
    text = sentence(jm(*work, f"--{option}", value), USAGE)
    assert f"--{option} has no effect without --ranks; give both, or omit --{option}" in text


def test_what_ranks_exchange_by_may_be_given_where_ranks_are_swept(tmp_path):
    """One rank alone is the reference."""
    store = tmp_path / "s.db"
    done = jm(*GPT, "--device", "ref", "--batch", "1", "--steps", "1", "--ranks", "1,2", "--shard-update", "off", "--store", store)
    assert done.returncode == 0, done.stderr
    assert len(records(store)) == 2


@pytest.mark.parametrize("work, says, hides", [
    ("train", ["rounds gradients", "auto = host for two ranks"], []),
    ("allreduce", ["at most 8 ranks", "auto = nccl"], ["gradients", "train"]),
    ("allgather", ["at most 8 ranks", "auto = nccl"], ["gradients", "train"])])
def test_the_help_of_a_transport_is_that_of_the_work(work, says, hides):
    text = " ".join(jm("help", work).stdout.split())
    text = text[re.search("--transport [A-Z]", text).start():]
    text = text[:text.index("Default auto.")]
    assert all(words in text for words in says) and not any(word in text for word in hides), text


def test_other_work_runs_on_one_rank():
    assert "--ranks" in sentence(jm("run", "null", "--ranks", "2"), USAGE)


TWO = ["--device", "later:0,later:1", "--ranks", "2"]


DEVICE_TRANSPORTS = pytest.mark.parametrize("transport", ["nccl", "host"])


@DEVICE_TRANSPORTS
@pytest.mark.parametrize("accumulate", ["1", "3"])
def test_sums_go_on_beside_backward(two_devices, accumulate, transport):
    """On queues of each device: the losses are those of one rank that waits for everything."""
    alone = one(*GPT, "--batch", "4", "--steps", "3", "--accumulate", accumulate, "--device", "ref")
    together = one(*GPT, "--batch", "2", "--steps", "3", "--accumulate", accumulate, *TWO, "--transport", transport, env=two_devices)
    assert losses(together) == pytest.approx(losses(alone), rel=2e-6)
    assert together["communication"]["transport"] == transport and together["devices"] == 2
    assert together["communication"]["exposed_s_per_step"] > 0


@pytest.mark.parametrize("accumulate", ["1", "2"])
def test_sums_of_bf16_gradients_go_on_beside_backward(two_devices, accumulate):
    """Without masters: of two slabs, those of matrices in 16 bits, on queues of each device; the same bits as on the host."""
    work = [*GPT, "--precision", "bf16-true", "--batch", "2", "--steps", "4", "--clip", "0", "--bucket", "0.01", "--accumulate", accumulate]
    slow = {**two_devices, "JM_FAKE_NCCL_US": "3000"}
    host = one(*work, "--ranks", "2", "--device", "ref")
    whole, shared = (one(*work, *TWO, "--transport", "nccl", "--shard-update", how, env=slow) for how in ("off", "on"))
    assert losses(shared) == losses(whole) == losses(host)
    assert shared["communication"]["shard_update"] is True and shared["communication"]["transport"] == "nccl"


@DEVICE_TRANSPORTS
@pytest.mark.parametrize("more", [[], ["--bucket", "0.01"], ["--accumulate", "2", "--eval-every", "2", "--eval-batches", "1"]], ids=str)
def test_a_sharded_update_goes_on_beside_the_next_step(two_devices, more, transport):
    """Parameters are gathered on the third queue while the next forward pass begins."""
    work = [*GPT, "--precision", "bf16", "--batch", "2", "--steps", "4", "--clip", "0.1", *more, *TWO, "--transport", transport]
    work += ["--gradients", "f32"] if transport == "host" else []
    slow = {**two_devices, "JM_FAKE_NCCL_US": "3000", "JM_FAKE_LANES_US": "1000"}
    whole, shared = (one(*work, "--shard-update", how, env=slow) for how in ("off", "on"))
    assert losses(shared) == pytest.approx(losses(whole), rel=2e-6)
    evaluations = ([e["loss"] for e in r.get("evaluations") or []] for r in (whole, shared))
    assert next(evaluations) == pytest.approx(next(evaluations), rel=2e-6)
    assert shared["communication"]["transport"] == transport


@pytest.mark.parametrize("peaks, transport", [("1e12,1e12", "host"), ("1e15,1e15", "nccl"), ("1e12,1e15", "nccl"), ("1e15,1e12", "nccl")])
def test_ranks_agree_on_a_transport(two_devices, peaks, transport):
    """The products of one device may hide exchanges that those of the other do not."""
    r = one(*GPT, "--precision", "bf16", "--batch", "2", "--steps", "2", *TWO, env={**two_devices, "JM_FAKE_LATER_PEAKS": peaks})
    assert r["communication"]["transport"] == transport and r["communication"]["rounded"] == (transport == "host")


@pytest.mark.parametrize("peaks, more, transport", [
    ("2e12", ["--precision", "bf16"], "host"),
    ("2e12", ["--precision", "bf16", "--gradients", "f32"], "nccl"),  # twice the bytes of gradients
    ("1e12", ["--precision", "bf16", "--gradients", "f32"], "host"),
    ("1e12/1e15", ["--precision", "bf16"], "host"),
    ("1e12/1e15", ["--precision", "fp8"], "nccl"),  # products in blocks take next to no time
    ("1e11/1e11", ["--precision", "fp8"], "host"),
    ("1e12", ["--precision", "bf16", "--batch", "max", "--memory", "0.01"], "nccl"),
], ids=str)
def test_the_transport_depends_on_what_is_sent_and_on_the_types_of_products(two_devices, peaks, more, transport):
    batch = [] if "max" in more else ["--batch", "2"]
    r = one(*GPT, *more, *batch, "--steps", "1", *TWO, env={**two_devices, "JM_FAKE_LATER_PEAKS": f"{peaks},{peaks}"})
    assert r["communication"]["transport"] == transport


def test_the_host_does_not_sum_activations_in_fp16(two_devices):
    work = [*GPT, "--precision", "fp16", "--batch", "2", "--steps", "1", *TWO, "--transport", "host"]
    r = one(*work, "--tp", "2", env=two_devices, status=FAILED)
    assert "transport host cannot sum fp16; give --transport nccl or --precision bf16" in r["reason"], r["reason"]
    assert one(*work, env=two_devices)["status"] == "ok"  # gradients are in f32


@pytest.mark.parametrize("hard", [200, 60])
def test_the_limit_of_open_files_is_raised_or_named(hard):
    """12 ranks have 36 in the process that starts them, which may have 32 at first."""
    done = jm("run", "allreduce", "--ranks", 12, "--size", 0.001, "--steps", 1, "--warmup", 0, "--source", "null", "--device", "ref", "--json", "-",
              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, hard)))
    if hard == 200:
        assert done.returncode == 0, done.stderr
    else:
        assert done.returncode == USAGE and "12 ranks need 100 open files, and this process may have 60" in done.stderr, done.stderr


@pytest.mark.parametrize("device", [0, 1])
def test_all_ranks_take_nccl_where_one_cannot_copy_over_the_host(two_devices, device):
    env = {**two_devices, "JM_FAKE_LATER_PEAKS": "1e12,1e12", "JM_FAKE_LANES_FAIL": str(device)}
    work = [*GPT, "--precision", "bf16", "--batch", "2", "--steps", "2", *TWO]
    assert one(*work, env=env)["communication"]["transport"] == "nccl"
    r = one(*work, "--transport", "host", env=env, status=FAILED)
    assert (f"Rank {device} of 2" in r["reason"] and "told to fail" in r["reason"]) or "use --transport nccl" in r["reason"], r["reason"]


@pytest.mark.parametrize("devices", ["later:0,ref", "ref,later:0"])
def test_devices_that_exchange_data_in_other_ways_are_refused(two_devices, devices):
    r = one(*GPT, "--batch", "1", "--steps", "1", "--device", devices, "--ranks", "2", env=two_devices, status=FAILED)
    assert "Ways to exchange data of rank 1" in r["reason"] and "devices of the same type" in r["reason"], r["reason"]


@pytest.mark.parametrize("ids, device", [("GPU-0,GPU-1", "later:0,later:0"), ("GPU-0,GPU-1", "later:0"),
                                         ("GPU-0,GPU-0", "later:0,later:1")], ids=str)
def test_two_ranks_on_one_gpu_are_refused_in_each_case(two_devices, ids, device):
    """By its number, or because two numbers are one GPU."""
    words = [*GPT, "--batch", "1,2", "--steps", "1", "--device", device, "--ranks", "2", "--json", "-"]
    found = json.loads(jm(*words, env={**two_devices, "JM_FAKE_LATER_IDS": ids}).stdout)
    assert [r["status"] for r in found] == ["failed", "failed"]
    assert all("Ranks 0 and 1 are both on" in r["reason"] and "one for each rank with --device" in r["reason"] for r in found)


def test_rounded_sums_differ_little(two_devices):
    """Over the host gradients travel in bf16; both ranks update with the same bits, so their losses stay one network's."""
    work = [*GPT, "--precision", "bf16", "--batch", "2", "--steps", "6", *TWO, "--transport", "host"]
    exact, rounded, plain = (one(*work, *more, env=two_devices) for more in (["--gradients", "f32"], ["--gradients", "bf16"], []))
    assert losses(rounded) == losses(plain) != losses(exact)
    assert losses(rounded) == pytest.approx(losses(exact), rel=1e-3)
    assert exact["communication"]["rounded"] is False and rounded["communication"]["rounded"] is True


@pytest.mark.parametrize("blocking", ["0", "1"])
@pytest.mark.parametrize("fault", ["HANGS", "LOSES"])
def test_a_fault_that_leaves_all_ranks_alive_ends_them(two_devices, fault, blocking):
    """Their transfer never ends, or NCCL never queues it; it tells the fault only when asked."""
    r = one(*GPT, "--batch", "2", "--steps", "30", *TWO, status=FAILED, timeout=ENDS_S,
            env={**two_devices, "NCCL_COMM_BLOCKING": blocking, "JM_FAKE_NCCL_" + fault: "9"})
    assert "A transfer by NCCL failed: remote process exited or there was a network error" in r["reason"], r["reason"]


@pytest.mark.parametrize("what", ["SELECTS", "BUILDS"])
def test_rank_0_plans_and_builds_before_the_others(two_devices, tmp_path, what):
    """What it chooses by timing and keeps, they find: sums need the same places and layouts, and runs the same algorithms."""
    log = tmp_path / "asked"
    one(*GPT, "--batch", "2", "--steps", "1", "--selftest", "0", *TWO, env={**two_devices, "JM_FAKE_LATER_" + what: str(log)})
    asked = log.read_text().split()
    assert set(asked) == {"0", "1"} and asked == sorted(asked)


@pytest.mark.parametrize("more, env, hint", [
    (["--device", "later:0", "--ranks", "2"], {}, "both on"),
    (TWO, {"JM_NCCL_LIB": "/nowhere/libnccl.so"}, "install NVIDIA's libnccl2"),
    (TWO, {"JM_FAKE_NCCL_VERSION": "21304"}, "2.14 or newer"),
    (TWO, {"JM_FAKE_NCCL_FAILS": "2"}, "A transfer by NCCL failed: internal error; the fake NCCL was told to fail"),
])
def test_what_nccl_lacks_is_said(two_devices, more, env, hint):
    r = one(*GPT, "--batch", "1", "--steps", "3", *more, env={**two_devices, **env}, status=FAILED)
    assert r["reason"].startswith("Rank ") and hint in r["reason"], r["reason"]


@pytest.mark.parametrize("library, ok, hint", [
    (BUILD / "tests/peers/libnccl-fake.so", True, "its library can be opened"),
    ("/nowhere/libnccl.so", False, "install NVIDIA's libnccl2"),
])
def test_the_doctor_looks_for_nccl(library, ok, hint):
    found = json.loads(jm("doctor", "--json", env={"JM_NCCL_LIB": str(library)}).stdout)
    row, = [f for f in found if f["member"] == "nccl"]
    assert row["section"] == "Exchange" and row["ok"] is ok and hint in row["why"]


def test_messages_of_nccl_come_from_all_ranks(two_devices):
    done = jm(*GPT, "--batch", "1", "--steps", "1", *TWO, "--json", "-", env={**two_devices, "NCCL_DEBUG": "INFO"})
    assert json.loads(done.stdout)["status"] == "ok"
    for rank in 0, 1:
        assert f"nccl-fake INFO: rank {rank}" in done.stderr


# of nccl-tests: what a ring moves for each byte is so often (W - 1)/W; 0: it is 1
FACTORS = [("allreduce", 2), ("allgather", 1), ("reducescatter", 1), ("alltoall", 1), ("broadcast", 0), ("p2p", 0)]


@pytest.mark.parametrize("kind, factor", FACTORS)
@pytest.mark.parametrize("ranks, transport", [(2, "local"), (3, "local"), (3, "net")])
def test_transfers_over_sizes(kind, factor, ranks, transport, tmp_path):
    """Each size is a case; results are verified, and the bus bandwidth follows from the time."""
    store = tmp_path / "s.db"
    done = jm("run", kind, "--device", "ref", "--ranks", ranks, "--size", "0.00001,0.003", "--steps", 3, "--warmup", 1,
              "--source", "null", "--store", store, "--transport", "auto" if transport == "local" else transport)
    assert done.returncode == 0, done.stderr
    for r in records(store):
        t = r["transfer"]
        assert r["verified"] is True and t["transport"] == transport and r["unit"] == "GB"
        assert t["bytes"] == pytest.approx(float(r["options"]["size"]) * 1e9, abs=8 * ranks)
        assert r["items"] == pytest.approx(3 * 16 * t["bytes"] / 1e9)
        assert t["bytes_per_s"] == pytest.approx(t["bytes"] / t["seconds"])
        assert t["bus_bytes_per_s"] == pytest.approx(t["bytes_per_s"] * (factor * (ranks - 1) / ranks if factor else 1))


@pytest.mark.parametrize("kind", [kind for kind, _ in FACTORS])
@pytest.mark.parametrize("transport", ["auto", "nccl", "host"])
def test_transfers_between_devices(two_devices, kind, transport):
    r = one("run", kind, *TWO, "--size", "0.0005", "--steps", 2, "--warmup", 1, "--source", "null", "--transport", transport,
            env=two_devices)
    assert r["verified"] is True and r["devices"] == 2
    assert r["transfer"]["transport"] == ("nccl" if transport == "auto" else transport)


@pytest.mark.parametrize("kind", [kind for kind, _ in FACTORS])
def test_transfers_in_pieces_between_three_devices(kind):
    """16 copies of transport host go through each channel of 4 slots; parts of the ranks differ in size."""
    done = jm("run", kind, "--device", "later:0,later:1,later:2", "--ranks", 3, "--size", "0.00000101,0.05", "--steps", 1,
              "--warmup", 0, "--source", "null", "--transport", "host", "--json", "-", env=devices(3))
    assert [r["verified"] for r in json.loads(done.stdout)] == [True, True], done.stderr


@pytest.mark.parametrize("device, transport, hint", [("ref", "host", "omit --transport host"), ("cpu", "nccl", "omit --transport nccl")])
def test_ranks_without_gpus_have_one_transport(device, transport, hint):
    r = one(*GPT, "--batch", "1", "--steps", "1", "--device", device, "--ranks", "2", "--transport", transport, status=FAILED)
    assert hint in r["reason"], r["reason"]


def test_two_gpus_burn_beside_processors_and_memory(two_devices):
    """By a fake of two GPUs, without NCCL: the ranks exchange nothing of their devices."""
    env = {**two_devices, "JM_NCCL_LIB": "/nonexistent"}
    record = one("run", "burn", "--side", 64, "--products", 4, "--steps", 3, "--warmup", 0, "--source", "null", "--selftest", 0,
                 "--processors", 2, "--host-memory", "0.004", *TWO, env=env)
    assert record["verified"] is True and (record["items"], record["devices"]) == (3 * 4 * 2, 2)


@pytest.mark.parametrize("ids, device, ranks, sets", [("GPU-0,GPU-1", "later:0", 1, 40), ("GPU-0,GPU-1", "later:0,later:1", 2, 40),
                                                      ("GPU-0,GPU-1", "later:0", 2, 20), ("GPU-0,GPU-0", "later:0,later:1", 2, 20)])
def test_ranks_that_burn_one_gpu_share_its_memory(two_devices, ids, device, ranks, sets):
    """The fake has as much memory as the machine, and no rank's operands take any of it."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    fill = 40.5 * 2 * 64 * 64 * 4 / memory
    record = one("run", "burn", "--side", 64, "--steps", 1, "--warmup", 0, "--source", "null", "--selftest", 0, "--precision", "f32",
                 "--fill", f"{fill:.9f}", "--device", device, *(["--ranks", ranks] if ranks > 1 else []),
                 env={**two_devices, "JM_NCCL_LIB": "/nonexistent", "JM_FAKE_LATER_IDS": ids, "JM_FAKE_LATER_OWN_MEMORY": "1"})
    assert f"{sets} sets of operands" in record["detail"], record["detail"]


def test_tcp_exchanges_no_memory_of_gpus(two_devices):
    r = one(*GPT, "--batch", "1", "--steps", "1", *TWO, "--transport", "net", env=two_devices, status=FAILED)
    assert "Transport net exchanges memory of hosts" in r["reason"] and "use --transport nccl" in r["reason"], r["reason"]


def test_a_transfer_of_one_rank_is_refused():
    r = one("run", "allreduce", "--device", "ref", "--source", "null", status=FAILED)
    assert "--ranks 2 or more" in r["reason"]
