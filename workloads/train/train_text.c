/* SPDX-License-Identifier: Apache-2.0 */
#include "train_text.h"

#include <stdio.h>
#include <unistd.h>

#define BYTE_VALUES 256
#define HASHED	    ((size_t)256 << 20) /* bytes of a text, at most */

/* English that Debian machines have, the best first. */
static const char *const texts[] = {
	"/usr/share/games/fortunes/literature",
	"/usr/share/common-licenses/GPL-3",
};

static int describe_text(
	struct train *s, const char *path, const struct jm_corpus *c, struct jm_err *err)
{
	size_t n = c->bytes < HASHED ? c->bytes : HASHED;
	uint64_t digest;
	int code = jm_corpus_digest(c, n, &digest, err);

	if (code)
		return code;
	s->data_digest = digest ^ c->bytes;
	snprintf(s->work->detail, sizeof(s->work->detail), "text %.80s (%sxxh3 %016llx)", path,
		n < c->bytes ? "first 256 MiB " : "", (unsigned long long)digest);
	return 0;
}

/* The text that the user names, else the first one that exists on this machine; NULL = there is
 * none. */
static const char *text_path(const struct train *s)
{
	const char *path = s->given.text;

	for (size_t i = 0; !path && i < sizeof(texts) / sizeof(*texts); i++)
		if (!access(texts[i], R_OK))
			path = texts[i];
	return path;
}

static int find_text(struct train *s, struct jm_corpus *ret, struct jm_err *err)
{
	const char *path = text_path(s);
	int code;

	if (!path)
		return jm_err_set(err, JM_ENOENT,
			"Found no text to learn from, because %s and similar files do not exist; "
			"give one with --text FILE.",
			texts[0]);
	code = jm_corpus_open(path, ret, err);
	return code ? code : describe_text(s, path, ret, err);
}

/* option: that names the file */
static int check_text(const struct train *s, const struct jm_batch_feed *feed, const char *option,
	struct jm_err *err)
{
	const struct jm_corpus *c = &feed->corpus;
	int64_t tokens = feed->tokens ? feed->tokens : c->tokens;
	int64_t vocabulary = jm_batch_feed_vocabulary(feed);

	if (!c->start && vocabulary < BYTE_VALUES)
		return jm_err_set(err, JM_ERANGE,
			"A vocabulary of %lld cannot hold the %d values of a byte; give a --vocab "
			"of %d or more.",
			(long long)vocabulary, BYTE_VALUES, BYTE_VALUES);
	if (tokens < s->training.seq + 1)
		return jm_err_set(err, JM_ERANGE,
			"The text has %lld %s%s, and a sequence of %lld with its next token needs "
			"%lld; give a longer %s or a smaller --seq.",
			(long long)tokens, c->start ? "tokens" : "bytes",
			feed == &s->eval.feed && feed->from ? " to hold out" : "",
			(long long)s->training.seq, (long long)s->training.seq + 1, option);
	return 0;
}

/* For evaluations: a separate text, or the last tenth of the training text, which is then not used
 * for training. */
static int hold_out(struct train *s, struct jm_err *err)
{
	const char *path = s->given.eval_text;
	struct jm_batch_feed *feed = &s->eval.feed;
	int64_t all = s->feed.corpus.tokens;
	int code;

	if (!s->eval.every)
		return 0;
	if (path) {
		code = jm_corpus_open(path, &feed->corpus, err);
		return code ? code : check_text(s, feed, "--eval-text", err);
	}
	code = jm_corpus_open(text_path(s), &feed->corpus, err);
	feed->tokens = all / 10;
	feed->from = all - feed->tokens;
	s->feed.tokens = feed->from;
	return code ? code : check_text(s, feed, "--text", err);
}

int jm_train_text_check(const struct train *s, struct jm_err *err)
{
	const struct jm_model *model = s->training.model;

	if ((!s->given.text && !s->given.eval_text) || jm_model_has_text(model))
		return 0;
	return jm_err_set(err, JM_EUSAGE,
		"Model %s reads no text, so %s has no effect; omit it, or give a model that learns "
		"from text, such as gpt.",
		model->name, s->given.text ? "--text" : "--eval-text");
}

int jm_train_text_open(struct train *s, struct jm_err *err)
{
	int code = find_text(s, &s->feed.corpus, err);

	if (!code)
		code = hold_out(s, err);
	return code ? code : check_text(s, &s->feed, "--text", err);
}
