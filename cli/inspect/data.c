/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark data: from texts to the tokens that a training reads, and a look at them. */
#include "cli/frame/cli.h"
#include "cli/frame/json_option.h"
#include "data/tokenizer/tokenizer_json.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/printable.h"
#include "data/corpus.h"
#include "data/tokenize.h"
#include "data_facts.h"
#include "data_pictures.h"
#include "report/format/text.h"

struct call {
	struct jm_cli *cli;
	struct jm_data_facts *facts;
	const char *tokenizer, *field, *eos; /* NULL = not given */
	const char *decode;		     /* "host", "device" */
	bool lines, template, held_out;
};

#define SHOWN 32 /* tokens */

static int open_tokenizer(const struct call *c, struct jm_tokenizer **ret)
{
	if (!c->tokenizer)
		return jm_err_set(&c->cli->err, JM_EUSAGE,
			"'joulemark data tokenize' needs --tokenizer FILE, the tokenizer.json of a "
			"model.");
	return jm_tokenizer_open(c->tokenizer, ret, &c->cli->err);
}

/* ---- tokenize -------------------------------------------------------------------------------- */

/* NAME of NAME, NAME.bin and NAME.idx; for the caller to free. */
static char *stem_of(const char *out)
{
	size_t n = strlen(out);

	if (n > 4 && (!strcmp(out + n - 4, ".bin") || !strcmp(out + n - 4, ".idx")))
		n -= 4;
	return strndup(out, n);
}

static int find_eos(const struct call *c, struct jm_tokenize *job)
{
	const char *eos = c->eos;

	job->eos = eos ? jm_tokenizer_id(job->tokenizer, eos, strlen(eos)) : -1;
	if (eos && job->eos < 0)
		return jm_err_set(&c->cli->err, JM_EUSAGE,
			"Tokenizer %s has no token '%.100s' for --eos; its file lists them under "
			"'added_tokens'.",
			c->tokenizer, eos);
	return 0;
}

static void print_result(
	struct jm_data_facts *f, const struct jm_tokenize *job, const char *out, double seconds)
{
	struct jm_cli *cli = f->cli;
	char line[PATH_MAX + 100];

	jm_data_count(f, "documents", job->size.documents);
	jm_data_count(f, "tokens", job->size.tokens);
	jm_data_count(f, "bytes", job->bytes);
	jm_data_count(f, "tokens/s", llround((double)job->size.tokens / fmax(seconds, 1e-6)));
	jm_data_count(f, "vocabulary", jm_tokenizer_size(job->tokenizer));
	if (cli->quiet || f->json)
		return;
	snprintf(line, sizeof(line),
		"A model learns from them with --text %s.bin --vocab %d, or a larger --vocab.", out,
		jm_tokenizer_size(job->tokenizer));
	jm_text_wrap(cli->out, line, 0, 0, cli->width);
}

static int tokenize_to(const struct call *c, struct jm_tokenize *job, const char *out)
{
	struct jm_cli *cli = c->cli;
	int64_t start = jm_ctx_now(&cli->ctx);
	int code = find_eos(c, job);

	if (!code)
		code = jm_tokenize(job, out, &cli->err);
	if (!code)
		print_result(c->facts, job, out, (double)(jm_ctx_now(&cli->ctx) - start) / 1e9);
	return code;
}

static int tokenize(const struct call *c)
{
	struct jm_cli *cli = c->cli;
	struct jm_tokenize job = {
		.texts = cli->args + 1,
		.n_texts = cli->n_args - 2,
		.lines = c->lines,
		.key = c->field,
		.template = c->template,
	};
	char *out;
	int code;

	if (job.n_texts < 1)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"'joulemark data tokenize' needs a text and the name of what is written: "
			"TEXT "
			"OUT.");
	out = stem_of(cli->args[cli->n_args - 1]);
	code = out ? open_tokenizer(c, &job.tokenizer)
		   : jm_err_set(&cli->err, JM_ENOMEM, "Out of memory.");
	if (!code)
		code = tokenize_to(c, &job, out);
	jm_tokenizer_close(job.tokenizer);
	free(out);
	return code;
}

/* ---- show ------------------------------------------------------------------------------------ */

static void print_ids(struct jm_data_facts *f, const int32_t *ids, size_t n)
{
	char line[16 * SHOWN];
	int used = 0;

	line[0] = '\0';
	for (size_t i = 0; i < n; i++)
		used += snprintf(
			line + used, sizeof(line) - (size_t)used, "%s%d", i ? " " : "", ids[i]);
	jm_data_text(f, "first tokens", line);
}

static int print_text(const struct call *c, const int32_t *ids, size_t n)
{
	struct jm_cli *cli = c->cli;
	struct jm_tokenizer *t = NULL;
	struct jm_bytes text = {0};
	char line[16 * SHOWN];
	int code = open_tokenizer(c, &t);

	if (!code)
		code = jm_tokenizer_decode(t, ids, n, true, &text, &cli->err);
	if (!code) {
		snprintf(line, sizeof(line), "%.*s", (int)text.n, text.n ? text.at : "");
		jm_text_tame_lines(line);
		for (char *at = line; *at; at++)
			*at = *at == '\n' || *at == '\r' || *at == '\t' ? ' ' : *at;
		jm_data_text(c->facts, "as text", line);
	}
	jm_tokenizer_close(t);
	free(text.at);
	return code;
}

static int print_set(const struct call *call, const struct jm_corpus *c)
{
	struct jm_cli *cli = call->cli;
	size_t n = c->tokens < SHOWN ? (size_t)c->tokens : SHOWN;
	int32_t ids[SHOWN];
	char type[40];
	int code = jm_corpus_read(c, 0, (int64_t)n, ids, &cli->err);

	if (code)
		return code;
	jm_data_count(call->facts, "documents", c->start ? c->n_documents : 1);
	jm_data_count(call->facts, "tokens", c->tokens);
	snprintf(type, sizeof(type), "%c%d%s", c->is_signed ? 'i' : 'u', 8 * c->width,
		c->start ? "" : " (a text, byte by byte)");
	jm_data_text(call->facts, "type", type);
	print_ids(call->facts, ids, n);
	return c->start && call->tokenizer ? print_text(call, ids, n) : 0;
}

/* An option that is given and changes nothing of this is an error. */
static int refuse(const struct call *c, const char *const *names, const char *of)
{
	const char *name = jm_cli_first_given(c->cli, names);

	return name ? jm_err_set(&c->cli->err, JM_EUSAGE, "--%s has no effect on %.200s; omit it.",
			      name, of)
		    : 0;
}

static int show_samples(const struct call *c, const char *data)
{
	static const char *const of_tokens[] = {"tokenizer", NULL};

	return refuse(c, of_tokens, "a data set that is not of tokens")
		       ? c->cli->err.code
		       : jm_cli_show_pictures(c->facts, data, c->held_out, c->decode[0] == 'd');
}

static int show(const struct call *c, const char *data)
{
	static const char *const of_texts[] = {"lines", "field", "eos", "template", NULL};
	static const char *const of_samples[] = {"held-out", NULL};
	struct jm_cli *cli = c->cli;
	struct jm_err why = JM_ERR_INIT;
	struct jm_corpus corpus;
	int code;

	if (refuse(c, of_texts, "a data set that is only shown (it is for 'tokenize')"))
		return cli->err.code;
	if (jm_data_set_is(data))
		return show_samples(c, data);
	if (jm_cli_is_picture(data))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"%.200s is one picture; name the folder that has a folder of pictures for "
			"each class.",
			data);
	code = jm_corpus_open(data, &corpus, &why);
	if (!code && c->decode[0] == 'd') {
		jm_corpus_close(&corpus);
		return jm_cli_refuse_decode(c->facts, data);
	}
	if (code == JM_ENOENT)
		return jm_err_set(&cli->err, code,
			"There is no data set '%.200s': neither a folder of pictures nor "
			"%.200s.bin with its .idx; check the path.",
			data, data);
	if (code)
		return jm_err_set(&cli->err, code, "%s", why.text);
	code = refuse(c, of_samples, "a data set of tokens, which has no held-out part");
	if (!code)
		code = print_set(c, &corpus);
	jm_corpus_close(&corpus);
	return code;
}

/* ---- the command ----------------------------------------------------------------------------- */

/* As a damaged record does, a damaged sample shows in the exit status. */
static int status_of(const struct jm_data_facts *f)
{
	if (f->damaged)
		fprintf(stderr,
			"joulemark: %lld sample%s cannot be read; a training skips and counts "
			"%s, or ends if --strict-data is given; the exit status is 1.\n",
			(long long)f->damaged, f->damaged > 1 ? "s" : "",
			f->damaged > 1 ? "them" : "it");
	return f->damaged ? 1 : 0;
}

static int run(struct jm_cli *cli)
{
	static const char *const of_shown[] = {"held-out", "decode", NULL};
	struct jm_data_facts facts;
	struct call c = {.cli = cli, .facts = &facts};
	bool word = !strcmp(cli->args[0], "show");
	int code;

	JM_FILL(&cli->values, &c);
	jm_data_facts_begin(&facts, cli);
	if (!strcmp(cli->args[0], "tokenize"))
		code = refuse(&c, of_shown, "'tokenize'") ? cli->err.code : tokenize(&c);
	else if (cli->n_args == 1 + word)
		code = show(&c, cli->args[word]);
	else
		code = jm_err_set(&cli->err, JM_EUSAGE,
			"'%.40s' %s: NAME, NAME.bin or NAME.idx of tokens, NAME.h5, NAME.json, or "
			"a folder of pictures.",
			cli->args[0],
			word ? "takes one data set"
			     : "is not 'tokenize', and only one data set is shown");
	if (jm_data_facts_end(&facts, code))
		code = cli->err.code;
	return code ? jm_cli_fail(cli) : status_of(&facts);
}

static const char *const decode_words[] = {"host", "device", NULL};

static const struct jm_option options[] = {
	{.name = "tokenizer",
		JM_BIND(JM_TEXT, struct call, tokenizer),
		.argument = "FILE",
		.help = "the tokenizer.json of a model"},
	{.name = "lines",
		JM_BIND(JM_FLAG, struct call, lines),
		.help = "each line is a document, not each file"},
	{.name = "field",
		JM_BIND(JM_TEXT, struct call, field),
		.argument = "KEY",
		.help = "each line is a JSON object with a document at this key"},
	{.name = "eos",
		JM_BIND(JM_TEXT, struct call, eos),
		.argument = "TOKEN",
		.help = "append this token to each document, such as '<|endoftext|>' or '</s>'"},
	{.name = "template",
		JM_BIND(JM_FLAG, struct call, template),
		.help = "put the tokens around each document that the tokenizer's post_processor "
			"puts "
			"there"},
	{.name = "held-out",
		JM_BIND(JM_FLAG, struct call, held_out),
		.help = "show the pictures for evaluations, not those for training"},
	{.name = "decode",
		JM_BIND(JM_CHOICE, struct call, decode),
		.choices = decode_words,
		.fallback = "host",
		.help = "who decodes JPEG files: the host, or also the first GPU of NVIDIA by "
			"nvJPEG, whose pixels are then compared with the host's"},
	JM_JSON_OPTION,
	{0},
};

const struct jm_command jm_command_data = {
	.name = "data",
	.summary = "turn texts into tokens to learn from, and look at data sets",
	.usage = "[options] [show] DATA | tokenize TEXT... OUT",
	.description =
		"'tokenize' writes the tokens of texts to OUT.bin and OUT.idx, a data set "
		"as Megatron "
		"reads it, which 'joulemark run MODEL --text OUT.bin' learns from. TEXT - "
		"is standard "
		"input. The tokenizer is a tokenizer.json of Hugging Face: byte-level BPE "
		"(GPT-2, Llama 3), "
		"BPE with bytes for unknown characters (Llama 2), or that of CLIP. Texts "
		"are read in "
		"parts, so they may be larger than memory; bytes that are not UTF-8 count "
		"as U+FFFD. "
		"Both files come to be when all of both is written; after an error or a "
		"kill there is "
		"nothing.\n\nOf DATA the other form prints documents, tokens and type of such a "
		"data set "
		"and its first "
		"tokens, with --tokenizer also as text. Of pictures it reads all: a folder "
		"with one "
		"folder of "
		"JPEG or PNG files per class (ImageNet's layout) or with captions (metadata.jsonl, "
		"captions.json or the folders of COCO, NAME.txt), CIFAR's binary files, or "
		"IDX files "
		"(MNIST), also compressed, or conversations about pictures (NAME.json, as LLaVA "
		"lists them); of fields in NAME.h5 it reads all values. It prints "
		"fields, classes or texts, pictures, sizes "
		"and damaged "
		"files of the "
		"training part; where a folder holds two parts, --held-out shows the other. If "
		"samples are damaged, the exit status is 1.",
	.example = "joulemark data tokenize book.txt book --tokenizer tokenizer.json --eos '</s>'\n"
		   "joulemark data book --tokenizer tokenizer.json\n"
		   "joulemark run gpt-117m --text book.bin --device cpu\n"
		   "joulemark data pictures",
	.options = options,
	.min_args = 1,
	.max_args = -1,
	.run = run,
};
