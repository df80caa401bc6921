# SPDX-License-Identifier: Apache-2.0
"""Small tokenizers of each kind, trained by the package `tokenizers` on the documents of this repository.

kinds.py FOLDER   writes FOLDER/KIND.json, and FOLDER/expected.json: texts and their ids as the package gives them
"""
import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

SOURCE = pathlib.Path(__file__).resolve().parents[3]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
FOREIGN = ["Zażółć gęślą jaźń. ĄĆĘŁ", "Съешь же ещё этих мягких французских булок", "日本語のテキストと中文文本。", "한국어 텍스트",
           "مرحبا بالعالم", "नमस्ते दुनिया", "😀 👩‍👩‍👧 🇩🇪 ", "naïve café Straße"] * 5


def texts():
    for path in sorted((SOURCE / "docs").glob("*.md"))[:8]:
        yield path.read_text(encoding="utf-8")
    yield from FOREIGN


def train(tokenizer, size=700, alphabet=(), special=(), **more):
    trainer = trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=list(special),
                                  initial_alphabet=list(alphabet), **more)
    tokenizer.train_from_iterator(texts(), trainer)
    return tokenizer


def gpt2(prefix=False):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    t.decoder = decoders.ByteLevel()
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return train(t, alphabet=pre_tokenizers.ByteLevel.alphabet(), special=["<|endoftext|>"])


def gpt2_prefix():
    t = gpt2(prefix=True)
    t.add_tokens([AddedToken("  ", normalized=True), AddedToken("    ", normalized=True), AddedToken("word", single_word=True),
                  AddedToken("left", lstrip=True, normalized=False), AddedToken("right", rstrip=True, normalized=False)])
    return t


def llama3():
    t = Tokenizer(models.BPE(ignore_merges=True))
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    t.decoder = decoders.ByteLevel()
    train(t, alphabet=pre_tokenizers.ByteLevel.alphabet())
    t.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[
            ("<|begin_of_text|>", t.token_to_id("<|begin_of_text|>"))])])
    return t


def starcoder():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                               pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    return train(t, alphabet=pre_tokenizers.ByteLevel.alphabet(), special=["<|endoftext|>"])


def qwen():
    t = llama3()
    t.normalizer = normalizers.NFC()
    return t


def llama2(newer):
    """Characters with bytes for the others; spaces as U+2581 by the normalizer, or by Metaspace in the newer form."""
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")  # for words in training
    train(t, special=special, size=900, limit_alphabet=120)
    made = json.loads(t.to_str())  # the bytes are tokens of the model only
    made["added_tokens"] = [a for a in made["added_tokens"] if not a["content"].startswith("<0x")]
    t = Tokenizer.from_str(json.dumps(made))
    if newer:
        t.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    else:
        made["pre_tokenizer"] = None
        t = Tokenizer.from_str(json.dumps(made))
        t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                   decoders.Strip(" ", 1, 0)])
    t.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return t


def metaspace():
    """Words at U+2581, without bytes: unknown characters are <unk>."""
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.decoder = decoders.Metaspace()
    return train(t, special=["<unk>"], limit_alphabet=90)


def gemma():
    t = llama2(newer=False)
    t.normalizer = normalizers.Replace(" ", "▁")
    t.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return t


def clip():
    t = Tokenizer(models.BPE(unk_token="<|endoftext|>", end_of_word_suffix="</w>", continuing_subword_prefix=""))
    t.normalizer = normalizers.Sequence([normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "),
                                         normalizers.Lowercase()])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(CLIP), "removed", invert=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    t.decoder = decoders.ByteLevel()
    train(t, special=["<|startoftext|>", "<|endoftext|>"], end_of_word_suffix="</w>", size=900,
          alphabet=pre_tokenizers.ByteLevel.alphabet())
    made = json.loads(t.to_str())  # each byte also as the end of a word, as in CLIP's own
    vocab = made["model"]["vocab"]
    for letter in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocab.setdefault(letter + "</w>", len(vocab))
    t = Tokenizer.from_str(json.dumps(made))
    t.post_processor = processors.RobertaProcessing(sep=("<|endoftext|>", t.token_to_id("<|endoftext|>")),
                                                    cls=("<|startoftext|>", t.token_to_id("<|startoftext|>")),
                                                    trim_offsets=False, add_prefix_space=False)
    return t


KINDS = {"gpt2": gpt2, "gpt2-prefix": gpt2_prefix, "llama3": llama3, "starcoder": starcoder, "qwen": qwen, "llama2": lambda: llama2(False),
         "llama2-newer": lambda: llama2(True), "metaspace": metaspace, "gemma": gemma, "clip": clip}

# Ranges of characters that are in all versions of Unicode that the package and PCRE2 know.
RANGES = [(0x20, 0x7e)] * 8 + [
    (0xa1, 0xff), (0x100, 0x17f), (0x1c4, 0x1cc), (0x300, 0x345), (0x391, 0x3a1), (0x3a3, 0x3c9), (0x410, 0x44f),
    (0x5d0, 0x5ea), (0x621, 0x652), (0x905, 0x94d), (0x0e01, 0x0e3a), (0x1100, 0x1112), (0x1161, 0x1175), (0x11a8, 0x11c2),
    (0x1e00, 0x1eff), (0x1f00, 0x1f15), (0x2010, 0x2044), (0x2070, 0x2071), (0x20a0, 0x20b5), (0x2150, 0x2188),
    (0x2190, 0x21ff), (0x24b6, 0x24e9), (0x2581, 0x2581), (0x3041, 0x3096), (0x30a1, 0x30fa), (0x4e00, 0x9fa5),
    (0xac00, 0xd7a3), (0xe000, 0xe010), (0xf900, 0xfa0d), (0xfb00, 0xfb06), (0xfdd0, 0xfdd3), (0xff01, 0xff5e), (0xfffd, 0xfffd),
    (0x10330, 0x1034a), (0x10400, 0x10427), (0x1d400, 0x1d454), (0x1f300, 0x1f5ff), (0x1f600, 0x1f64f), (0x1f1e6, 0x1f1ff),
    (0x20000, 0x2a6d6), (0xe0100, 0xe01ef), (0x10fffe, 0x10ffff)]
PIECES = [" ", " ", " ", "  ", "\n", "\n\n", "\r\n", "\t", "\u00a0", "\u3000", "\u2028", "\u0085", "\u180e", "\u200b", "\u200d",
          "\ufeff", "\x00", "\x01", "\x1c", "\x7f", "'s", "'LL", "'ve", "\u017f", "'\u017f", "I'm", "it's", "1234567", "12.5%", "don't",
          "<|endoftext|>", "<|end", "<s>", "</s>", "<unk>", "<0x41>", "<|startoftext|>", "<|begin_of_text|>", "word", "words", "left",
          " right ", "e\u0301", "\u0041\u030a", "\u1100\u1161\u11a8", "q\u0323\u0307", "\u0130", "\u03a3\u03a3", "\U0001f469\u200d\U0001f680",
          "▁", "▁▁", "</w>", "Ġ", "\u0958", "\u0344", "http://a.b/c?d=e&f", "0x1F", "---", "...", "((", "\\", "\ud7a3\u11a8"]


def fuzzed(seed, size):
    """Texts of about `size` characters in all, with everything that a tokenizer may treat in its own way."""
    rng = random.Random(seed)
    words = " ".join(texts()).split(" ")
    while size > 0:
        parts = []
        for _ in range(rng.choice([1, 2, 5, 20, 200])):
            kind = rng.random()
            if kind < 0.35:
                parts.append(rng.choice(["", " "]) + rng.choice(words))
            elif kind < 0.65:
                parts.append(rng.choice(PIECES))
            elif kind < 0.9:
                low, high = rng.choice(RANGES)
                parts.append("".join(chr(rng.randint(low, high)) for _ in range(rng.choice([1, 1, 2, 5]))))
            else:
                parts.append(rng.choice([" ", "\n", "a", "é", "漢", "\u0301", "▁", "9", "!"]) * rng.choice([3, 10, 60, 200]))
        text = "".join(parts)
        size -= len(text)
        yield text


def short(size):
    """Fuzzed texts of about `size` characters, none of them long."""
    texts_of = [text for text in fuzzed(1, 40 * size) if len(text) < 200]
    return texts_of[:next(n for n in range(len(texts_of)) if sum(map(len, texts_of[:n])) > size)]


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    expected = {"texts": short(1500), "ids": {}, "decoded": {}}
    for kind, make in KINDS.items():
        t = make()
        t.save(str(folder / f"{kind}.json"), pretty=False)
        got = [t.encode(text, add_special_tokens=False).ids for text in expected["texts"]]
        expected["ids"][kind] = got
        expected["decoded"][kind] = [t.decode(ids, skip_special_tokens=False) for ids in got]
    (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")


if __name__ == "__main__":
    main()
