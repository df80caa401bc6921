/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frequencies of processors through Linux's cpufreq files
 * (Documentation/admin-guide/pm/cpufreq.rst, intel_pstate.rst): cpu.clock is the range
 * scaling_min_freq to scaling_max_freq, cpu.governor the scaling governor, cpu.epp the preference
 * of energy against performance that some drivers pass to the processor.
 *
 * A device is a group of policies of one package that have the same limits, for which one value is
 * set: processors of two kinds in a package are two devices. Where the policies of a group have
 * different values there is no one value to restore, so it is not set. The kernel brings a range
 * into the limits of the hardware. Of the two ends the one is written first that leaves no reversed
 * range in between. The governor decides which preferences the driver takes, so it is the earlier
 * knob. The governor userspace has its speed in kHz behind it, "userspace_1200000", so that both
 * are restored.
 */
#include "guard/control.h"
#include "base/files/find_files.h"
#include "base/ctx.h"
#include "sysfs_file.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FOLDER	   "/sys/devices/system/cpu/cpufreq"
#define KILO	   1e3
#define MIN_FILE   "scaling_min_freq"
#define MAX_FILE   "scaling_max_freq"
#define SPEED_FILE "scaling_setspeed"
#define USERSPACE  "userspace" /* the governor that keeps a speed which somebody has set */

struct policy {
	int number;
	long long package, min_khz, max_khz;
};

enum what { CLOCK, GOVERNOR, EPP, WHATS };

static const struct {
	const char *knob, *file, *choices;
} whats[WHATS] = {
	[CLOCK] = {"cpu.clock", MAX_FILE, NULL},
	[GOVERNOR] = {"cpu.governor", "scaling_governor", "scaling_available_governors"},
	[EPP] = {"cpu.epp", "energy_performance_preference",
		"energy_performance_available_preferences"},
};

struct knob {
	enum what what;
	int first, n; /* its policies */
	struct jm_knob knob;
};

struct state {
	char folder[300];
	struct policy *policy; /* those of a group follow each other */
	int n_policies;
	struct knob *knob;
	int n;
};

static void file_of(const struct state *s, int policy, const char *file, char out[PATH_MAX])
{
	snprintf(out, PATH_MAX, "%s/policy%d/%s", s->folder, s->policy[policy].number, file);
}

static int read_line(const struct state *s, int policy, const char *file, char out[JM_SYSFS_LINE],
	struct jm_err *err)
{
	char path[PATH_MAX];

	file_of(s, policy, file, path);
	return jm_sysfs_read_line(path, out, err);
}

static int read_khz(
	const struct state *s, int policy, const char *file, long long *ret, struct jm_err *err)
{
	char path[PATH_MAX];

	file_of(s, policy, file, path);
	return jm_sysfs_read_number(path, ret, err);
}

/* What one policy has. */
static int get_policy(const struct state *s, enum what what, int policy, struct jm_knob_value *ret,
	struct jm_err *err)
{
	char line[JM_SYSFS_LINE];
	long long low, high;
	int rc;

	if (what != CLOCK) {
		rc = read_line(s, policy, whats[what].file, line, err);
		if (!rc && what == GOVERNOR && !strcmp(line, USERSPACE) &&
			!read_khz(s, policy, SPEED_FILE, &low, NULL))
			snprintf(line, sizeof(line), USERSPACE "_%lld", low);
		*ret = jm_knob_value_word(rc ? "" : line);
		return rc;
	}
	rc = read_khz(s, policy, MIN_FILE, &low, err);
	if (!rc)
		rc = read_khz(s, policy, MAX_FILE, &high, err);
	if (!rc)
		*ret = jm_knob_value_between((double)low * KILO, (double)high * KILO);
	return rc;
}

/* ---- groups ---- */

static int in_order(const void *a, const void *b)
{
	const struct policy *x = a, *y = b;

	return x->package != y->package	  ? (x->package > y->package) - (x->package < y->package)
	       : x->max_khz != y->max_khz ? (x->max_khz < y->max_khz) - (x->max_khz > y->max_khz)
	       : x->min_khz != y->min_khz ? (x->min_khz > y->min_khz) - (x->min_khz < y->min_khz)
					  : x->number - y->number;
}

static bool same_group(const struct policy *a, const struct policy *b)
{
	return a->package == b->package && a->min_khz == b->min_khz && a->max_khz == b->max_khz;
}

/* Policies without limits of the hardware are left out: they cannot be set. */
static void read_policy(struct state *s, const struct jm_ctx *ctx, const char *folder)
{
	struct policy *p = &s->policy[s->n_policies];
	char path[PATH_MAX];

	*p = (struct policy){.number = (int)strtol(strrchr(folder, 'y') + 1, NULL, 10)};
	snprintf(path, sizeof(path), "%s/sys/devices/system/cpu/cpu%d/topology/physical_package_id",
		ctx->root, p->number);
	jm_sysfs_read_number(path, &p->package, NULL);
	if (!read_khz(s, s->n_policies, "cpuinfo_min_freq", &p->min_khz, NULL) &&
		!read_khz(s, s->n_policies, "cpuinfo_max_freq", &p->max_khz, NULL) &&
		p->min_khz > 0 && p->max_khz > p->min_khz)
		s->n_policies++;
}

static int read_policies(struct state *s, const struct jm_ctx *ctx, struct jm_err *err)
{
	glob_t found;

	snprintf(s->folder, sizeof(s->folder), "%.250s" FOLDER, ctx->root);
	jm_find_files(&found, "%s/policy[0-9]*", s->folder);
	s->policy = calloc(found.gl_pathc + 1, sizeof(*s->policy));
	for (size_t i = 0; s->policy && i < found.gl_pathc; i++)
		read_policy(s, ctx, found.gl_pathv[i]);
	globfree(&found);
	if (!s->policy || !s->n_policies)
		return jm_err_set(err, JM_ENOSUP,
			"%s has no policy; the kernel does not control the frequency of these "
			"processors.",
			s->folder);
	qsort(s->policy, (size_t)s->n_policies, sizeof(*s->policy), in_order);
	return 0;
}

/* The words of the file beside; a userspace governor that was found is one more, with its speed. */
static bool read_choices(const struct state *s, enum what what, int first, struct jm_knob *knob)
{
	struct jm_knob_value now;
	char line[JM_SYSFS_LINE];
	size_t n, most = sizeof(knob->choices) - sizeof(now.word) - 1;

	if (read_line(s, first, whats[what].choices, line, NULL))
		return false;
	n = strlen(line);
	while (n && line[n - 1] == ' ')
		line[--n] = '\0';
	if (!n || n >= most)
		return false;
	memcpy(knob->choices, line, n + 1);
	if (!get_policy(s, what, first, &now, NULL) &&
		!strncmp(now.word, USERSPACE "_", sizeof(USERSPACE)))
		snprintf(knob->choices + n, sizeof(knob->choices) - n, " %s", now.word);
	if (jm_knob_takes_word(knob, JM_DEFAULT))
		knob->fallback = jm_knob_value_word(JM_DEFAULT);
	return true;
}

/* False: the group has not got it. */
static bool describe(const struct state *s, enum what what, int first, struct jm_knob *ret)
{
	const struct policy *p = &s->policy[first];
	struct jm_knob knob = {.ends = JM_ENDS_REBOOT, .fallback = jm_knob_value_of(NAN)};
	char line[JM_SYSFS_LINE];

	if (read_line(s, first, whats[what].file, line, NULL))
		return false;
	snprintf(knob.name, sizeof(knob.name), "%s", whats[what].knob);
	snprintf(knob.device, sizeof(knob.device), "policy%d", p->number);
	snprintf(knob.label, sizeof(knob.label), "processors of package %lld to %g MHz", p->package,
		(double)p->max_khz / KILO);
	if (what == CLOCK) {
		knob.kind = JM_KNOB_RANGE;
		memcpy(knob.unit, "Hz", sizeof("Hz"));
		knob.min = (double)p->min_khz * KILO;
		knob.max = (double)p->max_khz * KILO;
		knob.fallback = jm_knob_value_between(knob.min, knob.max);
	} else {
		knob.kind = JM_KNOB_CHOICE;
		if (!read_choices(s, what, first, &knob))
			return false;
	}
	*ret = knob;
	return true;
}

static int add_knobs(struct state *s, struct jm_knobs *set, struct jm_err *err)
{
	s->knob = calloc((size_t)s->n_policies * WHATS, sizeof(*s->knob));
	if (!s->knob)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for %d policies.", s->n_policies);
	for (enum what what = 0; what < WHATS; what++)
		for (int first = 0, n; first < s->n_policies; first += n) {
			struct knob *k = &s->knob[s->n];

			for (n = 1; first + n < s->n_policies &&
				    same_group(&s->policy[first], &s->policy[first + n]);)
				n++;
			if (!describe(s, what, first, &k->knob))
				continue;
			k->what = what;
			k->first = first;
			k->n = n;
			if (jm_knobs_add(set, &k->knob, err) < 0)
				return err ? err->code : JM_ENOMEM;
			s->n++;
		}
	return 0;
}

static void cpufreq_close(void *state)
{
	struct state *s = state;

	if (s) {
		free(s->policy);
		free(s->knob);
	}
	free(s);
}

static int cpufreq_open(struct jm_ctx *ctx, const char *arg, struct jm_knobs *set, void **ret_state,
	struct jm_err *err)
{
	struct state *s = calloc(1, sizeof(*s));
	int rc;

	(void)arg;
	if (!s)
		return jm_err_set(err, JM_ENOMEM, "Out of memory for the frequencies.");
	rc = read_policies(s, ctx, err);
	if (!rc)
		rc = add_knobs(s, set, err);
	if (rc)
		cpufreq_close(s);
	else
		*ret_state = s;
	return rc;
}

/* ---- values ---- */

static int cpufreq_get(void *state, int i, struct jm_knob_value *ret_accepted,
	struct jm_knob_value *ret_enforced, struct jm_err *err)
{
	const struct state *s = state;
	const struct knob *k = &s->knob[i];
	struct jm_knob_value first, other;
	int rc = get_policy(s, k->what, k->first, &first, err);

	for (int p = k->first + 1; p < k->first + k->n && !rc; p++) {
		rc = get_policy(s, k->what, p, &other, err);
		if (!rc && !jm_knob_value_same(&first, &other))
			rc = jm_err_set(err, JM_ENOSUP,
				"%s is not the same for policy%d and policy%d in %s, so that there "
				"is no one value to restore; make them equal first.",
				k->knob.name, s->policy[k->first].number, s->policy[p].number,
				s->folder);
	}
	if (!rc)
		*ret_accepted = *ret_enforced = first;
	return rc;
}

/* Where writes go. */
struct sink {
	jm_write_fn *fn;
	void *arg;
};

static int write_word(const struct state *s, int policy, const char *file, const char *word,
	const struct sink *sink, struct jm_err *err)
{
	char path[PATH_MAX];

	file_of(s, policy, file, path);
	return sink->fn(sink->arg, path, word, err);
}

static int write_khz(const struct state *s, int policy, const char *file, double hz,
	const struct sink *sink, struct jm_err *err)
{
	char text[32];

	snprintf(text, sizeof(text), "%.0f", hz / KILO);
	return write_word(s, policy, file, text, sink, err);
}

/* "performance", or "userspace_1200000". */
static int set_governor(const struct state *s, int policy, const char *word,
	const struct sink *sink, struct jm_err *err)
{
	const char *speed =
		strncmp(word, USERSPACE "_", sizeof(USERSPACE)) ? NULL : word + sizeof(USERSPACE);
	int rc = write_word(s, policy, whats[GOVERNOR].file, speed ? USERSPACE : word, sink, err);

	return rc || !speed ? rc : write_word(s, policy, SPEED_FILE, speed, sink, err);
}

static int set_policy(const struct state *s, enum what what, int policy,
	const struct jm_knob_value *value, const struct sink *sink, struct jm_err *err)
{
	long long high;
	bool rises;
	int rc;

	if (what == GOVERNOR)
		return set_governor(s, policy, value->word, sink, err);
	if (what == EPP)
		return write_word(s, policy, whats[what].file, value->word, sink, err);
	rc = read_khz(s, policy, MAX_FILE, &high, err);
	if (rc)
		return rc;
	rises = value->low > (double)high * KILO;
	rc = write_khz(s, policy, rises ? MAX_FILE : MIN_FILE, rises ? value->high : value->low,
		sink, err);
	if (rc)
		return rc;
	return write_khz(s, policy, rises ? MIN_FILE : MAX_FILE, rises ? value->low : value->high,
		sink, err);
}

/* The policies of the group up to one that fails; all: also those behind it. Returns the first
 * failure. */
static int set_group(const struct state *s, const struct knob *k, const struct jm_knob_value *value,
	bool all, const struct sink *sink, struct jm_err *err)
{
	int first = 0, rc = jm_knob_check_kind(&k->knob, value, err);

	if (rc)
		return rc;
	for (int p = k->first; p < k->first + k->n && (all || !first); p++) {
		rc = set_policy(s, k->what, p, value, sink, err);
		first = first ? first : rc;
	}
	return first;
}

static int cpufreq_writes(void *state, int i, const struct jm_knob_value *value, jm_write_fn *fn,
	void *arg, struct jm_err *err)
{
	const struct state *s = state;

	return set_group(s, &s->knob[i], value, false, &(struct sink){fn, arg}, err);
}

/* All policies of the group, or none. A group of which one cannot be read, as that of a processor
 * that is offline, is put back where it can be. */
static int cpufreq_set(void *state, int i, const struct jm_knob_value *value, struct jm_err *err)
{
	const struct state *s = state;
	const struct sink kernel = {jm_sysfs_write, NULL};
	struct jm_knob_value before, enforced;
	bool known = !cpufreq_get(state, i, &before, &enforced, NULL);
	int rc = set_group(s, &s->knob[i], value, !known, &kernel, err);

	if (rc && known)
		set_group(s, &s->knob[i], &before, true, &kernel, NULL);
	return rc;
}

static void cpufreq_say_knob(
	void *state, int i, const struct jm_knob *knob, jm_finding_fn *say, void *arg)
{
	const struct state *s = state;
	const struct knob *k = &s->knob[i];
	struct jm_knob_value now, enforced;
	struct jm_err err = JM_ERR_INIT;
	char why[300], path[PATH_MAX], text[JM_KNOB_TEXT];
	struct jm_finding f = {.what = knob->label, .why = why, .mend = ""};

	if (cpufreq_get(state, i, &now, &enforced, &err)) {
		f.why = err.text;
		say(arg, &f);
		return;
	}
	jm_knob_value_text(&now, knob->unit, text, sizeof(text));
	file_of(s, k->first, whats[k->what].file, path);
	f.ok = !access(path, W_OK);
	if (!f.ok)
		f.mend = "use sudo";
	snprintf(why, sizeof(why), "%s, now %s, of %d %s; %s", knob->name, text, k->n,
		k->n == 1 ? "policy" : "policies",
		f.ok ? "this user may set it" : "only root may set it");
	say(arg, &f);
}

const struct jm_control jm_control_cpufreq = {
	.name = "cpufreq",
	.summary = "frequency range, governor and energy preference of processors",
	.knobs = "cpu.clock cpu.governor cpu.epp",
	.origin = JM_MEASURED,
	.open = cpufreq_open,
	.get = cpufreq_get,
	.set = cpufreq_set,
	.writes = cpufreq_writes,
	.close = cpufreq_close,
	.say_knob = cpufreq_say_knob,
};
