/* SPDX-License-Identifier: Apache-2.0 */
/* A row for each process that uses processors or GPUs now, or has used them since the start. */
#include "top_processes.h"
#include "top_table.h"

#include "base/process/process_identity.h"
#include "report/format/text.h"

#include <math.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST	      50
#define COMMAND_LEAST 8
#define COMMAND_WHOLE 16
#define IMPORTANT     4 /* ranks */

struct row {
	const struct jm_top_view *view;
	const struct jm_process_row *process;
};

static void put_id(const void *row, char *out, size_t size)
{
	snprintf(out, size, "%d", (int)((const struct row *)row)->process->pid);
}

/* A name is looked up once: that may ask a server. */
static const char *user_name(uid_t uid)
{
	static struct {
		uid_t uid;
		char name[16];
	} known[32];
	static int n;
	const struct passwd *user;
	int i = 0;

	while (i < n && known[i].uid != uid)
		i++;
	if (i < n)
		return known[i].name;
	if (n == (int)(sizeof(known) / sizeof(known[0])))
		n = 0;
	user = getpwuid(uid);
	known[n].uid = uid;
	if (user)
		snprintf(known[n].name, sizeof(known[n].name), "%s", user->pw_name);
	else
		snprintf(known[n].name, sizeof(known[n].name), "%u", uid);
	return known[n++].name;
}

static void put_user(const void *row, char *out, size_t size)
{
	const struct jm_process_row *p = ((const struct row *)row)->process;
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d", (int)p->pid);
	snprintf(out, size, "%s", p->outside || stat(path, &st) ? "-" : user_name(st.st_uid));
}

/* "0", and "0+3" of a process that uses three more. */
static void put_device(const void *row, char *out, size_t size)
{
	const struct row *r = row;
	int device = r->process->device;

	snprintf(out, size, "-");
	if (device < 0)
		return;
	if (sscanf(r->view->set->meter[device].label, "GPU %d", &device) != 1)
		device = r->process->device;
	if (r->process->n_devices > 1)
		snprintf(out, size, "%d+%d", device, r->process->n_devices - 1);
	else
		snprintf(out, size, "%d", device);
}

static void put_use(const void *row, char *out, size_t size)
{
	jm_top_put_number(((const struct row *)row)->process->use * 100, 0, "%", out, size);
}

static void put_memory(const void *row, char *out, size_t size)
{
	jm_top_put_number(((const struct row *)row)->process->bytes * 1e-9, 2, "", out, size);
}

static void put_processors(const void *row, char *out, size_t size)
{
	jm_top_put_number(((const struct row *)row)->process->processors * 100, 0, "%", out, size);
}

static void put_joules(const void *row, char *out, size_t size)
{
	double joules = ((const struct row *)row)->process->joules;

	jm_top_put_number(joules, joules < 100, "", out, size);
}

static const struct jm_top_column columns[] = {
	{"PID", 9, 2, put_id},
	{"user", 10, 7, put_user},
	{"GPU", 5, 6, put_device},
	{"use", 6, 3, put_use},
	{"mem GB", 8, 5, put_memory},
	{"CPU", 7, 4, put_processors},
	{"J est.", 10, 1, put_joules},
};
#define COLUMNS (int)(sizeof(columns) / sizeof(columns[0]))

static double key_of(const struct jm_process_row *p, enum jm_top_sort sort)
{
	switch (sort) {
	case JM_TOP_BY_USE:
		return p->use;
	case JM_TOP_BY_BYTES:
		return p->bytes;
	case JM_TOP_BY_PROCESSORS:
		return p->processors;
	case JM_TOP_BY_ID:
		return -p->pid;
	default:
		return p->joules;
	}
}

/* The largest first, unknown ones last. */
static int compare_keys(double x, double y)
{
	if (isnan(x) || isnan(y))
		return !isnan(y) - !isnan(x);
	return (x < y) - (x > y);
}

/* Those that are equal, or unknown, by their processor time. */
static int compare(const void *a, const void *b, void *sort)
{
	const enum jm_top_sort by[] = {
		*(enum jm_top_sort *)sort, JM_TOP_BY_PROCESSORS, JM_TOP_BY_ID};
	const struct jm_process_row *x = *(const struct jm_process_row *const *)a,
				    *y = *(const struct jm_process_row *const *)b;

	for (size_t i = 0; i < sizeof(by) / sizeof(*by); i++) {
		int order = compare_keys(key_of(x, by[i]), key_of(y, by[i]));

		if (order)
			return order;
	}
	return 0;
}

static bool is_shown(const struct jm_process_row *p)
{
	return p->device >= 0 || p->joules >= 0.05 || p->processors >= 0.005;
}

static void put_row(const struct jm_top_view *view, const struct jm_top_layout *l,
	const struct jm_process_row *process, FILE *out)
{
	struct row r = {view, process};
	char command[256] = "";

	if (process->outside)
		snprintf(command, sizeof(command), "(outside of this container)");
	else
		jm_process_command(process->pid, command, sizeof(command));
	if (!*command) /* as that of a thread of the kernel */
		snprintf(command, sizeof(command), "[%s]", process->name);
	jm_top_put_cells(l, &r, out);
	fputs("  ", out);
	jm_top_put_padded(out, command, l->text - 2);
	fputc('\n', out);
}

void jm_top_put_processes(const struct jm_top_view *view, int width, FILE *out)
{
	struct jm_top_layout l = jm_top_lay_out(
		columns, COLUMNS, width, COMMAND_LEAST, IMPORTANT, COMMAND_WHOLE, width);
	enum jm_top_sort sort = view->sort;
	const struct jm_process_row **shown, *all;
	int n, n_shown = 0;

	all = jm_process_energy_rows(view->processes, &n);
	shown = calloc((size_t)n + 1, sizeof(*shown));
	for (int i = 0; shown && i < n; i++)
		if (is_shown(&all[i]))
			shown[n_shown++] = &all[i];
	if (shown && n_shown)
		qsort_r(shown, (size_t)n_shown, sizeof(*shown), compare, &sort);
	fputc('\n', out);
	fputc(JM_TOP_TITLE, out);
	for (int i = 0; i < COLUMNS; i++)
		if (l.shown[i])
			fprintf(out, "%*s", columns[i].width, columns[i].title);
	fputs("  ", out);
	jm_top_put_padded(out, "process", l.text - 2);
	fputc('\n', out);
	for (int i = 0; i < n_shown && i < MOST; i++)
		put_row(view, &l, shown[i], out);
	free(shown);
	if (n_shown > MOST)
		fprintf(out, "%d more processes\n", n_shown - MOST);
	if (*jm_process_energy_note(view->processes))
		jm_text_wrap(out, jm_process_energy_note(view->processes), 0, 2, width);
}
