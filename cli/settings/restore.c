/* SPDX-License-Identifier: Apache-2.0 */
/* The command `restore`. */
#include "base/text/json.h"
#include "cli/frame/cli.h"
#include "cli/frame/device_option.h"
#include "cli/frame/json_option.h"
#include "guard/guard_recover.h"

#include <signal.h>
#include <stdio.h>

struct restore {
	const char *control; /* NULL = not given */
	bool use_default;
};

static const struct jm_option options[] = {
	{.name = "default",
		JM_BIND(JM_FLAG, struct restore, use_default),
		.help = "if the original value is unknown because a journal is damaged: set the "
			"vendor's default, and keep the journal under another name"},
	{JM_CONTROL_ROW, JM_BIND(JM_TEXT, struct restore, control)}, JM_JSON_OPTION, {0}};

static int print_restored(struct jm_cli *cli, int n, int n_default)
{
	json_t *json;

	if (jm_json_wanted(cli)) {
		json = json_object();
		jm_json_set_int(&json, "restored", n);
		jm_json_set_int(&json, "set_to_default", n_default);
		jm_json_set_bool(&json, "complete", !cli->err.code);
		return jm_json_put(cli, json);
	}
	if (n_default)
		fprintf(cli->out, "Set %d %s to the vendor's default.\n", n_default,
			n_default == 1 ? "knob" : "knobs");
	if (n)
		fprintf(cli->out, "Restored %d %s.\n", n, n == 1 ? "setting" : "settings");
	else if (!cli->err.code && !n_default)
		fprintf(cli->out, "Nothing to restore.\n");
	return 0;
}

static int run_restore(struct jm_cli *cli)
{
	struct restore o = {0};
	int n = 0, n_default = 0;

	signal(SIGPIPE, SIG_IGN); /* a closed pipe must not end the restoring half-way */
	JM_FILL(&cli->values, &o);
	if (o.use_default)
		jm_guard_default(&cli->ctx, o.control, &n_default, &cli->err);
	jm_guard_release(&cli->ctx, &n, &cli->err);
	print_restored(cli, n, n_default);
	return cli->err.code ? jm_cli_fail(cli) : 0;
}

const struct jm_command jm_command_restore = {
	.name = "restore",
	.summary = "restore all settings that joulemark has changed",
	.usage = "[--default [--control NAME]] [--json[=FILE]]",
	.description = "Restores what 'joulemark set' has changed and what a killed joulemark has "
		       "left behind. Run it at boot and after a batch job; when there is nothing "
		       "to restore it does nothing. When a setting cannot be restored, the command "
		       "fails and keeps the journal.\n\nA damaged journal is replaced by its copy. "
		       "If both are damaged, the original value is unknown: restore then fails and "
		       "leaves the setting as it is, unless --default is given.",
	.example = "joulemark restore",
	.options = options,
	.no_recovery = true, /* it does that itself, and counts */
	.run = run_restore,
};
