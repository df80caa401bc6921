/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark merge: the records of several stores in one. */
#include "base/text/json.h"
#include "cli/frame/cli.h"
#include "cli/frame/json_option.h"
#include "base/files/store_file.h"
#include "store/store.h"
#include "store/store_merge.h"
#include "store/store_run.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct counts {
	int copied, there, damaged;
};

static bool same_file(const char *a, const char *b)
{
	struct stat x, y;

	return !stat(a, &x) && !stat(b, &y) && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Is it a store that this program reads? */
static int try_store(const char *path, struct jm_err *err)
{
	struct jm_store *s;
	int rc = jm_store_open(path, JM_STORE_READ, &s, err);

	if (!rc)
		jm_store_close(s, NULL);
	return rc;
}

/* Before anything is made or written. */
static int check_inputs(struct jm_cli *cli)
{
	const char *out = cli->args[0];
	struct stat st;

	if (!stat(out, &st) && !jm_store_is(out))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"%s exists and is not a store; name another file for the result.", out);
	for (int i = 1; i < cli->n_args; i++) {
		const char *path = cli->args[i];

		if (stat(path, &st))
			return jm_err_set(&cli->err, JM_ENOENT,
				"%s is not there; check the path of the store.", path);
		if (!jm_store_is(path))
			return jm_err_set(&cli->err, JM_EFORMAT,
				"%s is not a store of joulemark; merge reads stores only.", path);
		if (same_file(out, path))
			return jm_err_set(&cli->err, JM_EUSAGE,
				"%s is both the result and a store to merge; name another file for "
				"the result.",
				path);
		if (try_store(path, &cli->err))
			return cli->err.code;
	}
	return 0;
}

static void note_damage(void *arg, struct jm_err *damage)
{
	struct counts *n = arg;

	fprintf(stderr, "joulemark: Omitted: %s\n", damage->text);
	*damage = (struct jm_err)JM_ERR_INIT;
	n->damaged++;
}

static int add_store(struct jm_store *to, const char *path, struct counts *n, struct jm_err *err)
{
	struct jm_store *from;
	int rc = jm_store_open(path, JM_STORE_READ, &from, err);

	if (rc)
		return rc;
	jm_store_skip_damaged(from, note_damage, n);
	rc = jm_store_merge(to, from, &n->copied, &n->there, err);
	jm_store_close(from, NULL);
	return rc;
}

static int print(struct jm_cli *cli, const struct counts *n)
{
	json_t *json = json_object();

	if (!jm_json_wanted(cli)) {
		json_decref(json);
		fprintf(cli->out, "%s: %d record%s added, %d already there.\n", cli->args[0],
			n->copied, n->copied == 1 ? "" : "s", n->there);
		return 0;
	}
	jm_json_set_text(&json, "store", cli->args[0]);
	jm_json_set_int(&json, "added", n->copied);
	jm_json_set_int(&json, "already_there", n->there);
	jm_json_set_int(&json, "damaged", n->damaged);
	return jm_json_put(cli, json);
}

static int run(struct jm_cli *cli)
{
	struct counts n = {0};
	struct jm_store *to;
	int rc = check_inputs(cli);

	if (!rc)
		rc = jm_store_open(cli->args[0], JM_STORE_WRITE, &to, &cli->err);
	if (rc)
		return jm_cli_fail(cli);
	for (int i = 1; i < cli->n_args && !rc; i++)
		rc = add_store(to, cli->args[i], &n, &cli->err);
	if (jm_store_close(to, rc ? NULL : &cli->err) && !rc)
		rc = cli->err.code;
	if (!rc)
		rc = print(cli, &n);
	if (rc)
		return jm_cli_fail(cli);
	return n.damaged ? 1 : 0;
}

static const struct jm_option options[] = {JM_JSON_OPTION, {0}};

const struct jm_command jm_command_merge = {
	.name = "merge",
	.summary = "put the records of several stores into one",
	.usage = "[--json[=FILE]] OUT STORE...",
	.description = "Adds the finished and failed records of the stores to OUT, with their "
		       "traces; OUT is created if it does not exist. A run that is already in OUT, "
		       "such as one from a copy of a store, is added once. Where another run has "
		       "the same case and repeat, the repeat gets the next free number. Plans are "
		       "not merged, so that OUT has nothing to resume. A damaged record is omitted "
		       "with a warning that names it, and the exit status is then 1.",
	.example = "joulemark merge all.db node1.db node2.db",
	.options = options,
	.min_args = 2,
	.max_args = -1,
	.run = run,
};
