/* SPDX-License-Identifier: Apache-2.0 */
#include "output_phases.h"
#include "measure/session/session_part.h"

#include "base/ctx.h"

#include <stdio.h>
#include <string.h>

#define MOST   4096
#define BEFORE "rest" /* its name while no line has named it */

int jm_output_phases_open(struct jm_output_phases *p, struct jm_err *err)
{
	p->phase = -1;
	return p->regex ? jm_scan_new_names(p->regex, &p->scan, err) : 0;
}

static void open_phase(struct jm_output_phases *p, const char *name, int64_t t_ns)
{
	struct jm_err err = JM_ERR_INIT;

	p->phase = jm_session_begin(p->session, name, t_ns, &err);
	if (p->phase < 0)
		jm_log(p->ctx, JM_WARNING, "%s", err.text);
}

void jm_output_phases_begin(struct jm_output_phases *p, int64_t t_ns)
{
	p->t_ns = t_ns;
	if (p->scan && p->at_end)
		open_phase(p, BEFORE, t_ns);
}

/* A record names its main phase, so that no other one may have such a name. */
static void free_name(const char *name, char *out, size_t size)
{
	bool taken = !strcmp(name, "command") || !strncmp(name, "repeat", 6) ||
		     !strcmp(name, "marked") || !strcmp(name, "settle");

	snprintf(out, size, "%s%s", taken ? "line." : "", name);
}

/* A line that names the phase once more, as progress bars do, changes nothing where lines begin
 * phases; where they end them, another phase of that name ends. */
static void on_line(void *arg, const struct jm_mark *line)
{
	struct jm_output_phases *p = arg;
	bool again = !strcmp(line->name, p->name), other = p->n && !again;
	char name[sizeof(line->name) + 8];

	p->again += again;
	p->other = p->other || other;
	if ((again && !p->at_end) || p->n > MOST)
		return;
	p->burst = p->burst || (other && line->t_ns == p->read_ns);
	p->read_ns = line->t_ns;
	p->t_ns = line->t_ns > p->t_ns ? line->t_ns : p->t_ns;
	snprintf(p->name, sizeof(p->name), "%s", line->name);
	free_name(line->name, name, sizeof(name));
	if (p->at_end && p->phase >= 0)
		jm_session_rename(p->session, p->phase, name);
	if (p->phase >= 0)
		jm_session_end(p->session, p->phase, p->t_ns);
	p->phase = -1;
	if (++p->n > MOST)
		jm_log(p->ctx, JM_WARNING,
			"--phase-regex found more than %d phases; the rest of the output has none.",
			MOST);
	else
		open_phase(p, p->at_end ? BEFORE : name, p->t_ns);
}

void jm_output_phases_feed(struct jm_output_phases *p, const char *bytes, size_t n, int64_t t_ns)
{
	if (p->scan)
		jm_scan_feed(p->scan, bytes, n, t_ns, on_line, p);
}

void jm_output_phases_end(struct jm_output_phases *p, int64_t t_ns, const char *command)
{
	if (!p->scan)
		return;
	jm_scan_end(p->scan, t_ns, on_line, p);
	/* its last line may have been read after it ended */
	if (p->phase >= 0)
		jm_session_end(p->session, p->phase, t_ns > p->t_ns ? t_ns : p->t_ns);
	p->phase = -1;
	if (jm_scan_limited(p->scan))
		jm_log(p->ctx, JM_WARNING,
			"--phase-regex needs too many steps for %ld lines of the output, so phases "
			"may be "
			"missing; make it simpler.",
			jm_scan_limited(p->scan));
	if (!p->n)
		jm_log(p->ctx, JM_WARNING,
			"--phase-regex '%s' matches nothing that '%s' printed to standard output, "
			"so there "
			"are no phases.",
			p->regex, command);
	else if (p->again && !p->other && !strchr(p->regex, '('))
		jm_log(p->ctx, JM_INFO,
			"--phase-regex '%s' found one name, '%s', in %ld lines%s; a group tells "
			"them apart, such as 'Epoch (\\d+)'.",
			p->regex, p->name, p->again + 1, p->at_end ? "" : ", which are one phase");
	else if (p->burst)
		jm_log(p->ctx, JM_WARNING,
			"Lines of several phases came at once, so that their times are not known: "
			"'%s' keeps "
			"its output in a buffer. Let it write each line at once: "
			"PYTHONUNBUFFERED=1, "
			"print(..., flush=True), stdbuf -oL.",
			command);
}

void jm_output_phases_done(struct jm_output_phases *p)
{
	jm_scan_free(p->scan);
	p->scan = NULL;
}
