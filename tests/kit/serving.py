# SPDX-License-Identifier: Apache-2.0
"""A small network that is served."""
MODEL = ["--model", "llama", "--layers", "2", "--hidden", "32", "--heads", "4", "--kv-heads", "2", "--context", "64"]
SERVE = ["run", "serve", "--source", "null", "--warmup", "1", "--selftest", "0", "--precision", "f32", *MODEL]
