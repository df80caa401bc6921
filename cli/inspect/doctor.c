/* SPDX-License-Identifier: Apache-2.0 */
/* doctor: what can be measured and set on this machine; for what cannot, why and how to mend it. */
#include "cli/frame/cli.h"
#include "cli/frame/json_option.h"
#include "cli/frame/screen.h"
#include "doctor_ask.h"
#include "doctor_verdict.h"
#include "base/member.h"
#include "meter/source.h"
#include "guard/control_doctor.h"
#include "base/files/state_folder.h"
#include "comm/comm.h"
#include "engine/device/device.h"
#include "engine/graph/tensor.h"
#include "report/text/data_frame.h"
#include "report/format/text.h"
#include "vendor/http_server.h"
#include "vendor/near_cores.h"
#include "engine/device/backend_find.h"

#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MEASURE "Measure"

/* Where findings go: printed as they come, or into an array. */
struct report {
	const struct jm_cli *cli;
	const char *section, *member;
	bool shown;			/* the section's title */
	bool all;			/* also what is absent, with the reason */
	bool broken;			/* a sensor that is here cannot be used */
	char absent[400], unnamed[200]; /* members of the section */
	char stuck[200];		/* members whose driver does not return */
	json_t *array;
};

static const struct jm_option options[] = {
	JM_JSON_OPTION,
	{.name = "all",
		JM_BIND(JM_FLAG, struct report, all),
		.help = "also the reason for each thing that this machine does not have, and the "
			"sources that need an argument"},
	{0},
};

/* The first line is wrapped. Those below are commands to copy: they are printed as they are. */
static void print_remedy(const struct jm_cli *cli, const char *mend)
{
	size_t n = strcspn(mend, "\n");
	char text[600];

	snprintf(text, sizeof(text), "-> %.*s", (int)n, mend);
	jm_text_wrap(cli->out, text, 6, 9, cli->width);
	if (mend[n])
		fprintf(cli->out, "%s\n", mend + n + 1);
}

static const char *answer(const struct jm_finding *f)
{
	if (f->needs_argument)
		return "needs an argument";
	return f->ok ? "yes" : "no ";
}

/* A member is named once, whatever several findings say of it. */
static void fold(char *names, size_t size, const char *member)
{
	if (!jm_doctor_names(names, member))
		jm_text_append(names, size, ", ", member);
}

static void print_title(struct report *r)
{
	const struct jm_cli *cli = r->cli;

	if (!r->shown)
		fprintf(cli->out, "%s%s%s\n", jm_screen_code(cli->colour, JM_BOLD), r->section,
			jm_screen_code(cli->colour, JM_PLAIN));
	r->shown = true;
}

static void print_folded(struct report *r, const char *what, const char *names)
{
	char text[500];

	if (!*names)
		return;
	print_title(r);
	snprintf(text, sizeof(text), "%s: %s", what, names);
	jm_text_wrap(r->cli->out, text, 2, 6, r->cli->width);
}

/* "yes rapl: CPU 0: energy", and for what is missing the remedy below. */
static void print_finding(struct report *r, const struct jm_finding *f)
{
	const struct jm_cli *cli = r->cli;
	char text[1400];

	print_title(r);
	fprintf(cli->out, "  %s%s%s ",
		jm_screen_code(cli->colour, f->needs_argument ? JM_BOLD
					    : f->ok	      ? JM_GREEN
							      : JM_RED),
		answer(f), jm_screen_code(cli->colour, JM_PLAIN));
	snprintf(text, sizeof(text), "%s: %s: %s", r->member, f->what, f->why);
	jm_text_wrap_on(cli->out, text, 3 + (int)strlen(answer(f)), 6, cli->width);
	if (f->ok || !*f->mend)
		return;
	print_remedy(cli, f->mend);
}

static void say(void *arg, const struct jm_finding *given)
{
	struct report *r = arg;
	char what[300], why[900];
	const struct jm_finding tame = {
		given->ok, what, why, given->mend, given->needs_argument, given->absent};
	const struct jm_finding *f = &tame;

	/* devices are called what they like */
	jm_text_format(what, sizeof(what), "%s", given->what);
	jm_text_format(why, sizeof(why), "%s", given->why);
	if (r->array) {
		json_array_append_new(
			r->array, json_pack("{ss ss so sb ss ss ss}", "section", r->section,
					  "member", r->member, "ok",
					  f->needs_argument ? json_null() : json_boolean(f->ok),
					  "needs_argument", f->needs_argument, "what", f->what,
					  "why", f->why, "mend", f->mend));
		return;
	}
	if (!f->ok && !f->absent && !f->needs_argument && !strcmp(r->section, MEASURE))
		r->broken = true;
	if (f->absent && !r->all)
		fold(r->absent, sizeof(r->absent), r->member);
	else if (f->needs_argument && !r->all)
		fold(r->unnamed, sizeof(r->unnamed), r->member);
	else
		print_finding(r, f);
}

static void begin(struct report *r, const char *section)
{
	if (r->section) {
		print_folded(r, "need an argument", r->unnamed);
		print_folded(r, "not here", r->absent);
	}
	*r->unnamed = *r->absent = '\0';
	r->section = section;
	r->shown = false;
}

/* A member whose driver does not return is not asked again, as the control of the same driver. */
static void ask(struct report *r, struct jm_ctx *ctx, const char *name, const char *summary,
	jm_doctor_fn *fn, const void *member)
{
	struct jm_finding f = {.what = summary,
		.why = "its driver has not returned from a call for 10 s",
		.mend = "see the kernel's log ('dmesg'); the device may need a reset, or the "
			"machine a "
			"new start"};

	r->member = name;
	if (!jm_doctor_names(r->stuck, name)) {
		if (jm_doctor_ask(ctx, fn, member, say, r))
			return;
		jm_text_append(r->stuck, sizeof(r->stuck), ", ", name);
	}
	say(r, &f);
}

/* ---- sources --------------------------------------------------------------------------------- */

static void say_meter(
	const struct jm_meters *set, const struct jm_meter *m, jm_finding_fn *give, void *arg)
{
	char why[256] = "";
	struct jm_finding f = {.ok = true, .what = m->label, .why = why, .mend = ""};
	size_t used = 0;

	for (int i = 0; i < m->n_signals && used < sizeof(why); i++)
		used += (size_t)snprintf(why + used, sizeof(why) - used, "%s%s", i ? ", " : "",
			jm_quantity_name(set->signal[m->first_signal + i].quantity));
	if (m->origin != JM_MEASURED && used < sizeof(why))
		snprintf(why + used, sizeof(why) - used, " (%s%s%s)", jm_origin_name(m->origin),
			*m->about ? ": " : "", m->about);
	give(arg, &f);
}

/* Without a doctor function: the meters that it opens. */
static void ask_source(struct jm_ctx *ctx, const void *member, jm_finding_fn *give, void *arg)
{
	const struct jm_source *source = member;
	struct jm_meters set = {0};
	struct jm_err err = JM_ERR_INIT;
	struct jm_finding f = {.what = source->summary, .mend = ""};
	void *state = NULL;

	if (source->doctor) {
		source->doctor(ctx, give, arg);
		return;
	}
	if (!jm_source_open(source, ctx, "", &set, &state, &err)) {
		for (int i = 0; i < set.n; i++)
			say_meter(&set, &set.meter[i], give, arg);
		source->close(state);
	} else {
		f.needs_argument = source->options && err.code == JM_EUSAGE;
		f.absent = err.code == JM_ENOENT || err.code == JM_ENOSUP;
		f.why = err.text;
		give(arg, &f);
	}
	jm_meters_done(&set);
}

static void ask_sources(struct report *r, struct jm_ctx *ctx)
{
	begin(r, MEASURE);
	for (int i = 0; jm_sources[i]; i++) {
		if (!strcmp(jm_sources[i]->name, "null"))
			continue;
		ask(r, ctx, jm_sources[i]->name, jm_sources[i]->summary, ask_source, jm_sources[i]);
	}
}

/* ---- controls -------------------------------------------------------------------------------- */

static void ask_control(struct jm_ctx *ctx, const void *member, jm_finding_fn *give, void *arg)
{
	jm_control_doctor(member, ctx, give, arg);
}

static void ask_controls(struct report *r, struct jm_ctx *ctx)
{
	begin(r, "Set");
	for (int i = 0; jm_controls[i]; i++) {
		const struct jm_control *c = jm_controls[i];

		ask(r, ctx, c->name, c->summary, ask_control, c);
	}
}

/* ---- backends -------------------------------------------------------------------------------- */

/* "f32, tf32, bf16": what it has instructions for. */
static void list_types(const struct jm_device *d, char *ret, size_t size)
{
	size_t n = 0;

	*ret = '\0';
	for (int i = 0; i < JM_DTYPE_COUNT && n < size; i++) {
		if (!d->props.native[i] || i == JM_I32)
			continue;
		n += (size_t)snprintf(ret + n, size - n, "%s%s%s", n ? ", " : "",
			jm_dtype_name((enum jm_dtype)i),
			i == JM_F32 && d->props.peak_tf32 > 0 ? ", tf32" : "");
	}
}

static void say_device(const char *what, const struct jm_device *d, jm_finding_fn *give, void *arg)
{
	char why[1000], memory[40] = "", types[80], versions[700];
	struct jm_finding f = {.ok = true, .what = what, .why = why, .mend = ""};

	if (d->props.memory_bytes && !d->props.host_memory)
		snprintf(memory, sizeof(memory), ", %.1f GB of memory free",
			(double)d->props.memory_bytes / 1e9);
	list_types(d, types, sizeof(types));
	jm_device_versions(d, versions, sizeof(versions));
	snprintf(why, sizeof(why), "%s%s; computes in %s%s%s%s", d->props.name, memory, types,
		d->props.native[JM_BF16] ? "" : "; bf16 is emulated and slow",
		*versions ? "; " : "", versions);
	give(arg, &f);
}

#define MOST_DEVICES 64

/* Every device of the backend: its indices are tried until one is not there. A device that cannot
 * be used does not end the search. */
static void ask_backend(struct jm_ctx *ctx, const void *member, jm_finding_fn *give, void *arg)
{
	const char *name = member;
	const char *mend = strcmp(name, "cpu")
				   ? "otherwise use --device cpu, or ref, which is always "
				     "available but slow"
				   : "use --device ref, which is always available but slow";
	struct jm_device d;
	char device[48], what[24];

	(void)ctx;
	for (int i = 0; i < MOST_DEVICES; i++) {
		struct jm_err err = JM_ERR_INIT;
		struct jm_finding f = {.what = what, .why = err.text, .mend = i ? "" : mend};
		int code;

		snprintf(device, sizeof(device), i ? "%s:%d" : "%s", name, i);
		snprintf(what, sizeof(what), "device %d", i);
		code = jm_device_open(device, 0, &d, &err);
		if (code && i && code == JM_ENOENT)
			return;
		f.absent = code == JM_ENOENT;
		if (code) {
			give(arg, &f);
		} else {
			say_device(what, &d, give, arg);
			jm_device_close(&d);
		}
		if (!strcmp(name, "ref") || code == JM_ENOENT || code == JM_EVERSION)
			return; /* it takes any index, or none is there */
	}
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* The folder that does not exist yet can be made when one of its parents can be written. */
static bool can_write(char *path)
{
	while (access(path, F_OK)) {
		char *slash = strrchr(path, '/');

		if (!slash || slash == path)
			return access(slash ? "/" : ".", W_OK) == 0;
		*slash = '\0';
	}
	return access(path, W_OK) == 0;
}

static void ask_state(struct report *r, struct jm_ctx *ctx)
{
	char path[PATH_MAX], what[PATH_MAX];
	struct jm_err err = JM_ERR_INIT;
	struct jm_finding f = {.what = what,
		.why = "the folder of the journals of settings can be written",
		.mend = "set JM_STATE to a folder that you can write"};

	begin(r, "Keep");
	r->member = "state";
	if (jm_state_path(ctx, "", path, sizeof(path), &err)) {
		f.what = "state folder";
		f.why = err.text;
		say(r, &f);
		return;
	}
	memcpy(what, path, sizeof(what));
	f.ok = can_write(path);
	if (!f.ok)
		f.why = "this folder cannot be written, so that no setting can be changed";
	say(r, &f);
}

/* Libraries for files and pages, which are opened when an option or a command needs them. */
static void ask_outputs(struct report *r)
{
	static const struct {
		const char *member, *what, *why, *mend;
		int (*try)(struct jm_err *err);
	} rows[] = {
		{"hdf5", "libhdf5", "HDF5 of 'measure --hdf5' and 'jpwr' can be written",
			"install libhdf5-103-1", jm_columns_try_hdf5},
		{"http", "libmicrohttpd", "'export' can answer over HTTP",
			"install libmicrohttpd12", jm_http_server_try},
	};

	begin(r, "Write");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct jm_err err = JM_ERR_INIT;
		struct jm_finding f = {
			.ok = !rows[i].try(&err), .what = rows[i].what, .mend = rows[i].mend};

		f.why = f.ok ? rows[i].why : err.text;
		r->member = rows[i].member;
		say(r, &f);
	}
}

/* What the ranks of a case can exchange their gradients by. */
static void ask_transports(struct report *r)
{
	begin(r, "Exchange");
	for (int i = 0; jm_transports[i]; i++) {
		const struct jm_transport *t = jm_transports[i];
		struct jm_err err = JM_ERR_INIT;
		char mend[80];
		struct jm_finding f = {.ok = !t->check || !t->check(&err),
			.what = t->summary,
			.mend = t->host_memory ? mend : "only runs on several GPUs need it"};

		snprintf(mend, sizeof(mend), "only ranks with --transport %s need it", t->name);
		f.why = !f.ok		 ? err.text
			: t->check	 ? "its library can be opened"
			: t->host_memory ? "ranks can use it"
					 : "ranks on GPUs can use it";
		r->member = t->name;
		say(r, &f);
	}
}

/* By what ranks get the cores next to their GPUs. */
static void ask_affinity(struct report *r)
{
	struct jm_err err = JM_ERR_INIT;
	struct jm_finding f = {
		.ok = !jm_near_cores_try(&err), .what = "hwloc", .mend = "install libhwloc15"};

	begin(r, "Bind");
	f.why = f.ok ? "ranks get the cores next to their GPUs" : err.text;
	r->member = "affinity";
	say(r, &f);
}

static void say_absent(struct report *r, const struct jm_absent *absent)
{
	for (; absent->name; absent++) {
		struct jm_finding f = {
			.what = absent->kind, .why = absent->reason, .mend = "", .absent = true};

		r->member = absent->name;
		f.mend = "install it and build joulemark again";
		say(r, &f);
	}
}

static int run_doctor(struct jm_cli *cli)
{
	struct report r = {.cli = cli};

	JM_FILL(&cli->values, &r);
	if (jm_json_wanted(cli))
		r.array = json_array();
	ask_sources(&r, &cli->ctx);
	ask_controls(&r, &cli->ctx);
	begin(&r, "Compute");
	for (size_t i = 0; jm_backend_name(i); i++)
		ask(&r, &cli->ctx, jm_backend_name(i), "devices", ask_backend, jm_backend_name(i));
	ask_transports(&r);
	ask_affinity(&r);
	ask_state(&r, &cli->ctx);
	ask_outputs(&r);
	begin(&r, "Not built in");
	say_absent(&r, jm_absent_sources);
	say_absent(&r, jm_absent_controls);
	say_absent(&r, jm_absent_transports);
	say_absent(&r, jm_absent_workloads);
	say_absent(&r, jm_absent_models);
	if (r.array)
		return jm_json_put(cli, r.array) ? jm_cli_fail(cli) : 0;
	begin(&r, NULL);
	jm_doctor_verdict(cli, r.broken, r.stuck);
	return 0;
}

const struct jm_command jm_command_doctor = {
	.name = "doctor",
	.summary = "show what can be measured and set here, and what to do where it cannot",
	.usage = "[--all] [--json[=FILE]]",
	.description = "Tries every source and every control and changes nothing. For what is here "
		       "and cannot be used it names the file or library, the reason and the "
		       "remedy. What this machine does not have is named in one line; --all gives "
		       "the reasons. 'need an argument' marks sources that need options, such as "
		       "the address of a power meter; without them it is unknown whether they "
		       "answer (null in JSON). The last lines say what kind of figures this "
		       "machine gives, and what to do next.",
	.example = "joulemark doctor\n"
		   "joulemark doctor --all",
	.options = options,
	.no_recovery = true, /* it writes nothing at all */
	.run = run_doctor,
};
