/* SPDX-License-Identifier: Apache-2.0 */
#include "scaling_text.h"
#include "base/text/json.h"
#include "report/format/text.h"
#include "report/model/title.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FIGURES 5
#define MILLION 1e6

const char jm_scaling_caption[] =
	"At the reference setting, or the first. The ideal is the throughput of the fewest devices "
	"times as many as there are more; the time is that of a million items.";

static void title_of(const struct jm_scaling *s, char *out, size_t size)
{
	const struct jm_scaled *first = s->at[0];
	char work[200];

	jm_group_work(first->record, true, work, sizeof(work));
	if (isnan(first->batch))
		snprintf(out, size, "%s", work);
	else if (!s->strong)
		snprintf(out, size, "%s, batch %g %s (weak scaling)", work, first->batch,
			first->models == first->devices ? "on each device" : "of each model");
	else
		snprintf(out, size, "%s, batch %g of all together (strong scaling)", work,
			first->batch * first->models);
}

static bool on_hosts(const struct jm_scaling *s)
{
	for (int i = 0; i < s->n; i++)
		if (s->at[i]->hosts > 1)
			return true;
	return false;
}

static int put_estimate(
	struct jm_grid *grid, int row, int column, const struct jm_stat *stat, struct jm_err *err)
{
	char text[64];

	if (isnan(stat->mean))
		return jm_grid_set(grid, row, column, err, "-");
	jm_text_estimate(stat->mean, stat->half_width, text, sizeof(text));
	return jm_grid_set(grid, row, column, err, "%s", text);
}

static int put_titles(struct jm_grid *grid, const char *item, bool hosts, struct jm_err *err)
{
	int c = 0, rc = jm_grid_set(grid, -1, c++, err, "devices");

	if (!rc && hosts)
		rc = jm_grid_set(grid, -1, c++, err, "hosts");
	if (!rc)
		rc = jm_grid_set(grid, -1, c, err, "%s/s", item);
	if (!rc)
		rc = jm_grid_set(grid, -1, c + 1, err, "of ideal %%");
	if (!rc)
		rc = jm_grid_set(grid, -1, c + 2, err, "W");
	if (!rc)
		rc = jm_grid_set(grid, -1, c + 3, err, "J/%s", item);
	if (!rc)
		rc = jm_grid_set(grid, -1, c + 4, err, "s for 10⁶ %ss", item);
	return rc;
}

static int put_row(
	const struct jm_scaling *s, int row, bool hosts, struct jm_grid *grid, struct jm_err *err)
{
	const struct jm_stat *stat = s->at[row]->point->stat;
	int c = 0, rc = jm_grid_set(grid, row, c++, err, "%g", s->at[row]->devices);

	if (!rc && hosts)
		rc = jm_grid_set(grid, row, c++, err, "%d", s->at[row]->hosts);
	if (!rc)
		rc = put_estimate(grid, row, c, &stat[JM_M_THROUGHPUT], err);
	if (!rc)
		rc = jm_grid_set(grid, row, c + 1, err, "%.1f", jm_scaling_of_ideal(s, row));
	if (!rc)
		rc = put_estimate(grid, row, c + 2, &stat[JM_M_WATTS], err);
	if (!rc)
		rc = put_estimate(grid, row, c + 3, &stat[JM_M_JOULES_ITEM], err);
	if (!rc)
		rc = jm_grid_set(
			grid, row, c + 4, err, "%.4g", MILLION / stat[JM_M_THROUGHPUT].mean);
	return rc;
}

static int make_grid(const struct jm_scaling *s, struct jm_grid *ret, struct jm_err *err)
{
	bool hosts = on_hosts(s);
	struct jm_grid grid;
	int rc = jm_grid_new(&grid, s->n, FIGURES + 1 + hosts, err);

	if (rc)
		return rc;
	rc = put_titles(&grid, jm_json_text(s->at[0]->record, "unit"), hosts, err);
	for (int i = 0; i < s->n && !rc; i++)
		rc = put_row(s, i, hosts, &grid, err);
	if (rc)
		jm_grid_done(&grid);
	else
		*ret = grid;
	return rc;
}

void jm_scaling_each(const struct jm_grouping *g, jm_scaling_fn *put, void *arg)
{
	struct jm_err unused = JM_ERR_INIT;
	struct jm_scalings all;
	struct jm_grid grid;
	char title[300];

	if (jm_scalings_init(&all, g, &unused))
		return;
	for (int i = 0; i < all.n; i++) {
		if (make_grid(&all.all[i], &grid, &unused))
			break;
		title_of(&all.all[i], title, sizeof(title));
		put(arg, &all.all[i], title, &grid);
		jm_grid_done(&grid);
	}
	jm_scalings_done(&all);
}

struct printed {
	const struct jm_grouping *g;
	FILE *out;
	bool begun;
};

static void print_one(
	void *arg, const struct jm_scaling *s, const char *title, struct jm_grid *grid)
{
	struct printed *p = arg;
	int width = p->g->options.width;

	(void)s;
	if (!p->begun) {
		jm_text_title(p->out, JM_SCALING_TITLE, p->g->options.bold, width);
		jm_text_wrap(p->out, jm_scaling_caption, 0, 2, width);
		fputc('\n', p->out);
	}
	p->begun = true;
	jm_text_wrap(p->out, title, 0, 2, width);
	jm_grid_print(grid, 0, width, p->out);
	fputc('\n', p->out);
}

void jm_scaling_print(const struct jm_grouping *g, FILE *out)
{
	struct printed p = {.g = g, .out = out};

	jm_scaling_each(g, print_one, &p);
}
