/* SPDX-License-Identifier: Apache-2.0 */
/* joulemark report: from a store or from JSON files of records to a table, a file or a page. */
#include "cli/frame/cli.h"
#include "cli/frame/json_option.h"
#include "record_input.h"
#include "report_formats.h"
#include "base/files/output.h"
#include "base/files/store_file.h"
#include "base/printable.h"
#include "result/record_keys.h"
#include "store/store.h"
#include "store/store_run.h"
#include "store/store_trace.h"
#include "report/page/page_trace.h"
#include "report/judge/report_objective.h"
#include "report/report.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TRACES_AT_MOST	  100 /* on a page */
#define STRETCHES	  700 /* of a meter's trace */
#define STRETCHES_LEAST	  50
#define STRETCHES_AT_MOST 75000 /* of all traces together: about 600 kB */

static const char *const formats[] = {
#define X(name, text) text,
	JM_REPORT_FORMATS(X)
#undef X
		NULL,
};

static const char *const pools[] = {"devices", NULL};

#define MOST_IN_FULL                                                                               \
	(8 << 20) /* bytes of input that are read with all details, such as the energy of phases */

struct call {
	struct jm_report_options report;
	const char *html, *output, *k, *objective, *pool; /* NULL = not given */
	enum jm_report_format format;
	bool max_slowdown_given, pue_given; /* and no defaults */
};

/* What is reported. */
struct input {
	struct jm_record_input in;
	double add_watts; /* that the plans of all stores give; NAN = none was read */
	bool plans_differ;
	bool idle_counted, idle_not; /* idle GPUs: by a plan; not by a plan or a file of records */
	json_t *traces;		     /* NULL = not wanted */
	json_t *details;
};

/* Of a trace: the index of its record, and how many traces share the page. */
struct trace_place {
	size_t index;
	int n_traces;
};

/* Is this the first successful run of its case? Its trace represents the others. seen: ids of cases
 * with one. */
static bool stands_for_case(const json_t *record, json_t *seen)
{
	const char *status = json_string_value(json_object_get(record, "status"));
	const char *id = json_string_value(json_object_get(json_object_get(record, "case"), "id"));

	if (!id || (status && strcmp(status, "ok")) || json_object_get(seen, id))
		return false;
	return !json_object_set_new(seen, id, json_true());
}

static bool wants_signal(void *trace, int signal)
{
	return jm_page_trace_wants(trace, signal);
}

static int take_chunk(void *trace, const struct jm_chunk *chunk, struct jm_err *err)
{
	return jm_page_trace_chunk(trace, chunk, err);
}

/* The trace of a record, thinned; JSON null without power in it. */
static int read_trace(struct jm_store *store, const struct jm_meters *set, const json_t *record,
	struct trace_place place, json_t **ret, struct jm_err *err)
{
	const json_t *of_case = json_object_get(record, "case");
	int stretches = STRETCHES_AT_MOST / (place.n_traces * (set->n > 0 ? set->n : 1));
	struct jm_chunk_reader reader = {wants_signal, take_chunk, NULL};
	struct jm_page_trace *trace;
	int rc;

	if (stretches > STRETCHES)
		stretches = STRETCHES;
	trace = jm_page_trace_new(set, stretches < STRETCHES_LEAST ? STRETCHES_LEAST : stretches);
	reader.arg = trace;
	if (trace &&
		json_array_size(json_object_get(record, "hosts"))) /* phases are of the first */
		jm_page_trace_begin(trace, json_integer_value(json_object_get(record, "start_ns")));
	rc = trace ? jm_store_chunks(store, json_string_value(json_object_get(of_case, "id")),
			     (int)json_integer_value(json_object_get(of_case, "repeat")), &reader,
			     err)
		   : 0;
	*ret = trace && !rc ? jm_page_trace_json(trace, (int)place.index) : NULL;
	jm_page_trace_free(trace);
	if (!rc && !*ret)
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for a power trace.");
	return rc;
}

/* A record without a trace has none on the page. */
static int add_trace(struct jm_store *store, const json_t *record, struct trace_place place,
	json_t *traces, struct jm_err *err)
{
	const json_t *of_case = json_object_get(record, "case");
	struct jm_err none = JM_ERR_INIT;
	struct jm_meters set = {0};
	json_t *json = NULL;
	int rc = jm_store_signals(store, json_string_value(json_object_get(of_case, "id")),
		(int)json_integer_value(json_object_get(of_case, "repeat")), &set, &none);

	if (rc == JM_ENOENT)
		return 0;
	if (rc)
		return jm_err_set(err, rc, "%s", none.text);
	rc = read_trace(store, &set, record, place, &json, err);
	if (!rc && json_array_append_new(traces, json))
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for a power trace.");
	jm_meters_done(&set);
	return rc;
}

/* Of a large store, whose records are read without their details: those of this one. */
static int add_details(struct jm_store *store, const json_t *record, size_t index, json_t *details,
	struct jm_err *err)
{
	const json_t *of_case = json_object_get(record, "case");
	json_t *whole;
	char key[24];
	int rc = jm_store_record(store, json_string_value(json_object_get(of_case, "id")),
		(int)json_integer_value(json_object_get(of_case, "repeat")), &whole, err);

	if (rc || !whole)
		return rc;
	snprintf(key, sizeof(key), "%zu", index);
	if (json_object_set_new(details, key, whole))
		rc = jm_err_set(err, JM_ENOMEM, "Out of memory for a record.");
	return rc;
}

/* Indices of the records whose traces are shown. */
static size_t choose_records(const json_t *records, size_t first, size_t *ret, size_t most)
{
	json_t *seen = json_object();
	size_t n = 0;

	for (size_t i = first; seen && i < json_array_size(records) && n < most; i++)
		if (stands_for_case(json_array_get(records, i), seen))
			ret[n++] = i;
	json_decref(seen);
	return n;
}

/* What a plan, or a file of records without one, counts beside the run. */
static void note_rest(struct input *input, double watts, bool idle_gpus)
{
	input->plans_differ |= !isnan(input->add_watts) && input->add_watts != watts;
	input->add_watts = watts;
	input->idle_counted |= idle_gpus;
	input->idle_not |= !idle_gpus;
}

static int note_plan(void *arg, const json_t *plan, struct jm_err *err)
{
	const json_t *how = json_object_get(plan, "how");
	struct input *input = arg;

	(void)err;
	note_rest(input, json_number_value(json_object_get(how, "add_watts")),
		json_is_true(json_object_get(how, "idle_gpus")));
	return 0;
}

static int add_traces(
	const struct input *input, struct jm_store *store, size_t first, struct jm_err *err)
{
	size_t chosen[TRACES_AT_MOST], had = json_array_size(input->traces), n;
	int rc = 0;

	if (had >= TRACES_AT_MOST)
		return 0;
	n = choose_records(input->in.records, first, chosen, TRACES_AT_MOST - had);
	for (size_t i = 0; i < n && !rc; i++) {
		const json_t *record = json_array_get(input->in.records, chosen[i]);
		struct trace_place place = {chosen[i], (int)(had + n)};

		rc = add_trace(store, record, place, input->traces, err);
		if (!rc && !input->in.full)
			rc = add_details(store, record, chosen[i], input->details, err);
	}
	return rc;
}

static int with_store(void *arg, struct jm_store *store, size_t first, struct jm_err *err)
{
	int rc = jm_store_plans(store, note_plan, arg, err);
	const struct input *input = arg;

	return rc || !input->traces ? rc : add_traces(input, store, first, err);
}

/* Of the rest of the node: the user's figure, else that of the plans. */
static double added_watts(const struct call *c, const struct input *input)
{
	if (!isnan(c->report.add_watts))
		return c->report.add_watts;
	if (input->plans_differ)
		fprintf(stderr,
			"joulemark: note: The plans of these records differ in the power of the "
			"rest of the node (add-watts), so none is added; give --add-watts.\n");
	return input->plans_differ || isnan(input->add_watts) ? 0 : input->add_watts;
}

/* The user's word, else that of the plans. */
static bool counts_idle(const struct call *c, const struct input *input)
{
	bool differ = input->idle_counted && input->idle_not && !c->report.idle_gpus;

	if (differ)
		fprintf(stderr, "joulemark: note: Not all plans of these records count idle GPUs "
				"(idle-gpus), so none is counted; give --idle-gpus.\n");
	return c->report.idle_gpus || (input->idle_counted && !input->idle_not);
}

static enum jm_report_format format_of(const struct call *c)
{
	return c->html ? JM_REPORT_HTML : c->format;
}

/* A page on a terminal is of no use: a name is made up for it. */
static const char *output_of(const struct call *c)
{
	if (c->html || c->output)
		return c->html ? c->html : c->output;
	return c->format == JM_REPORT_HTML ? "report.html" : "-";
}

static int write_out(const char *path, const char *text, struct jm_err *err)
{
	int rc = jm_output_text(path, text, err);

	if (!rc && strcmp(path, "-") != 0)
		fprintf(stderr, "joulemark: Wrote %s (%zu kB).\n", path, strlen(text) / 1000);
	return rc;
}

/* --html also sets the format. */
static int check_options(struct jm_cli *cli, const struct call *c)
{
	bool csv = c->format == JM_REPORT_CSV && !c->report.published;
	bool priced = c->report.figures.price > 0 || c->report.figures.carbon > 0;

	if (c->html && (c->output || c->format != JM_REPORT_TABLE))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--html stands for --format and --output; give either --html or the other "
			"two.");
	if (c->report.cases && !csv)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--cases applies to the records as CSV: give --format csv, and omit "
			"--published.");
	if (c->objective && c->max_slowdown_given)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--objective and --max-slowdown both say what the best setting is; give "
			"one of them.");
	if (!priced && (c->pue_given || c->report.figures_from))
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--%s has no effect without --price or --carbon; give one of these, or "
			"omit --%s.",
			c->pue_given ? "pue" : "figures-from",
			c->pue_given ? "pue" : "figures-from");
	if (priced && !c->report.figures_from)
		return jm_err_set(&cli->err, JM_EUSAGE,
			"--price and --carbon need --figures-from with their date and source, such "
			"as 'contract of 2026-01' or 'grid operator, mean of 2025'.");
	return jm_report_check_format(cli, format_of(c));
}

static bool is_sum(const json_t *record)
{
	return json_object_get(json_object_get(record, "job"), "parts") != NULL;
}

/* Traces and details follow their records; a sum of several has no details. */
static int join_jobs(struct input *input, struct jm_err *err)
{
	json_t *trace, *details = input->details ? json_object() : NULL, *one;
	size_t *place = NULL, i;
	int rc = jm_record_input_join(&input->in, &place, err);
	const char *key;
	char text[24];

	json_array_foreach(rc ? NULL : input->traces, i, trace) json_object_set_new(trace, "record",
		json_integer(
			(json_int_t)place[json_integer_value(json_object_get(trace, "record"))]));
	json_object_foreach(rc ? NULL : input->details, key, one)
	{
		size_t now = place[strtoul(key, NULL, 10)];

		snprintf(text, sizeof(text), "%zu", now);
		if (!is_sum(json_array_get(input->in.records, now)))
			json_object_set(details, text, one);
	}
	json_decref(input->details);
	input->details = details;
	free(place);
	return rc;
}

static int report(struct jm_cli *cli, struct call *c, struct input *input)
{
	struct jm_record_input *in = &input->in;
	struct jm_report_options *o = &c->report;
	int rc = check_options(cli, c);
	char *text;

	o->width = cli->width;
	o->bold = cli->colour && !c->output;
	o->pool_devices = c->pool;
	if (!rc)
		rc = jm_report_k_parse(c->k, o, &cli->err);
	if (!rc && c->objective)
		rc = jm_report_objective_parse(c->objective, o, &cli->err);
	for (int i = 0; i < cli->n_args && !rc; i++) {
		if (!jm_store_is(cli->args[i]))
			note_rest(input, 0, false);
		rc = jm_record_input_add(in, cli->args[i], &cli->err);
	}
	if (!rc)
		rc = join_jobs(input, &cli->err);
	o->add_watts = rc ? 0 : added_watts(c, input);
	o->idle_gpus = !rc && counts_idle(c, input);
	jm_record_input_warn(in, "1");
	o->traces = input->traces;
	o->details = input->details;
	if (!rc)
		rc = jm_report_render(in->records, format_of(c), o, &text, &cli->err);
	if (rc)
		return rc;
	rc = write_out(output_of(c), text, &cli->err);
	free(text);
	return rc;
}

/* Of all files. The records of one call are read either with details or without, so that equal ones
 * are recognised. */
static off_t input_size(const struct jm_cli *cli)
{
	struct stat st;
	off_t sum = 0;

	for (int i = 0; i < cli->n_args; i++)
		sum += !stat(cli->args[i], &st) ? st.st_size : 0;
	return sum;
}

static int run(struct jm_cli *cli)
{
	struct input input = {.add_watts = NAN};
	struct call c = {0};
	bool page, full;
	int rc, status;

	JM_FILL(&cli->values, &c);
	page = format_of(&c) == JM_REPORT_HTML;
	full = format_of(&c) == JM_REPORT_OPENMETRICS || c.report.phases ||
	       input_size(cli) <= MOST_IN_FULL;
	input.traces = page ? json_array() : NULL;
	input.details = page ? json_object() : NULL;
	rc = jm_record_input_init(&input.in, full, &cli->err);
	signal(SIGXFSZ, SIG_IGN); /* a file that may not grow is an error like a full disk */
	if (!rc && page && (!input.traces || !input.details))
		rc = jm_err_set(&cli->err, JM_ENOMEM, "Out of memory for the power traces.");
	input.in.with_store = with_store;
	input.in.arg = &input;
	if (!rc)
		rc = report(cli, &c, &input);
	status = input.in.n_damaged ? 1 : 0;
	jm_record_input_done(&input.in);
	json_decref(input.traces);
	json_decref(input.details);
	return rc ? jm_cli_fail(cli) : status;
}

static const struct jm_option options[] = {
	{.name = "html",
		.usual = true,
		.heading = "Output",
		JM_BIND(JM_TEXT, struct call, html),
		.argument = "FILE",
		.help = "write the page: the same as --format html --output FILE"},
	{.name = "format",
		.usual = true,
		JM_BIND(JM_CHOICE, struct call, format),
		.choices = formats,
		.fallback = "table",
		.help = "format of the output; html is one page that needs no network, openmetrics "
			"the energy of each phase and meter for Prometheus"},
	{JM_JSON_FORMAT},
	{.name = "output",
		.usual = true,
		JM_BIND(JM_TEXT, struct call, output),
		.argument = "FILE",
		.help = "file to write; - is standard output; without it that, or report.html"},
	{.name = "why",
		JM_BIND(JM_FLAG, struct call, report.why),
		.help = "also print the reasons of the quality grade in the table"},
	{.name = "cases",
		.usual = true,
		JM_BIND(JM_FLAG, struct call, report.cases),
		.help = "write CSV with one row per case instead of one per setting"},
	{.name = "title", JM_BIND(JM_TEXT, struct call, report.title), .help = "title of the page"},
	{.name = "columns",
		.usual = true,
		.heading = "Table",
		JM_BIND(JM_TEXT, struct call, report.columns),
		.argument = "NAME,...|all",
		.help = "columns of the table; without it the most important ones. Names: "
			"accepted, enforced, state, n, origin, throughput, throughput_per_device, "
			"watts_mean, watts_median, watts_p99, watts_max, hours, kwh, "
			"wh_per_gpu_hour, gpu_load_percent, joules_per_item, wh_per_item, "
			"items_per_joule, items_per_wh, edp, ed2p, zeus_cost, "
			"cost_per_million, carbon_g_per_million, mfu_percent, hfu_percent, "
			"mfu_measured_percent, hfu_measured_percent, ttft_p50_s, ttft_p99_s, "
			"tpot_p50_s, tpot_p99_s, latency_p99_s, goodput_per_s, "
			"energy_gain_percent, time_loss_percent, gain_minus_loss, and eds_kK for "
			"each K of --k"},
	{.name = "phases",
		.usual = true,
		JM_BIND(JM_FLAG, struct call, report.phases),
		.help = "print the phases of each run, as of a single run without it"},
	{.name = "published",
		.usual = true,
		JM_BIND(JM_FLAG, struct call, report.published),
		.help = "also list what papers report for the same network, in a table of its "
			"own; with --format csv that table alone is written"},
	{.name = "pool",
		JM_BIND(JM_CHOICE, struct call, pool),
		.choices = pools,
		.help = "devices: pools the runs on several sets of devices with the same model, "
			"processor and drivers; the set is a factor of the analysis. Without it "
			"each host, set of devices and driver is a separate series"},
	{.name = "max-slowdown",
		.usual = true,
		.heading = "Choice of the best setting",
		JM_BIND(JM_REAL, struct call, report.max_slowdown),
		JM_GIVEN(struct call, max_slowdown_given),
		.unit = "%",
		.argument = "PERCENT",
		.min = 0.1,
		.max = 1000,
		.fallback = "5%",
		.help = "the best setting has the least energy among those that are, with all of "
			"their 95 % interval, at most so much slower than the reference; "
			"--objective has other rules"},
	{.name = "objective",
		JM_BIND(JM_TEXT, struct call, objective),
		.argument = "NAME",
		.help = "the best setting is another one than that of --max-slowdown: that with "
			"the least energy per item (energy), the least EDP (edp), ED2P (ed2p) or "
			"EDS with that k (eds:2), or the highest throughput within a mean power "
			"of the whole run (power:2000W); slowdown:10% is --max-slowdown 10%"},
	{.name = "k",
		JM_BIND(JM_TEXT, struct call, k),
		.argument = "K,...",
		.fallback = "1.5,2.0",
		.help = "slowdown factors of the Energy Delay Sum"},
	{.name = "idle-gpus",
		JM_BIND(JM_FLAG, struct call, report.idle_gpus),
		.help = "also count the energy of GPUs on which the work did not run; without it "
			"only if the plan in the store says so (idle-gpus: true)"},
	{.name = "add-watts",
		JM_BIND(JM_REAL, struct call, report.add_watts),
		.unit = "W",
		.min = 0,
		.max = 1e6,
		.help = "assumed power of the rest of each node, which is added to every case; "
			"without it what the plan in the store gives, else 0"},
	{.name = "zeus-eta",
		JM_BIND(JM_REAL, struct call, report.figures.zeus_eta),
		.min = 0.001,
		.max = 1,
		.fallback = "0.5",
		.help = "weight of energy in ZeusCost; the weight of time is 1 minus this"},
	{.name = "price",
		.usual = true,
		.heading = "Cost, carbon and peak",
		JM_BIND(JM_REAL, struct call, report.figures.price),
		.min = 0,
		.max = 1e6,
		.fallback = "0",
		.help = "price of a kWh: adds the energy cost of a million items; 0 = none"},
	{.name = "currency",
		JM_BIND(JM_TEXT, struct call, report.currency),
		.needs = "price",
		.help = "currency of the price, such as EUR"},
	{.name = "carbon",
		JM_BIND(JM_REAL, struct call, report.figures.carbon),
		.min = 0,
		.max = 1e5,
		.fallback = "0",
		.help = "gCO2e per kWh of electricity: adds the carbon of a million items; 0 = "
			"none"},
	{.name = "figures-from",
		.usual = true,
		JM_BIND(JM_TEXT, struct call, report.figures_from),
		.help = "date and source of price and carbon intensity, which the report repeats"},
	{.name = "pue",
		JM_BIND(JM_REAL, struct call, report.figures.pue),
		JM_GIVEN(struct call, pue_given),
		.min = 1,
		.max = 10,
		.fallback = "1",
		.help = "energy of the facility by that of its machines: a factor of cost and "
			"carbon"},
	{.name = "peak-flops",
		JM_BIND(JM_REAL, struct call, report.figures.peak_flops),
		.min = 0,
		.max = 1e18,
		.fallback = "0",
		.help = "dense FLOP/s of a device in the precision of the work: adds MFU and HFU. "
			"Those of the measured peak need a run of gemm on it; 0 = unknown"},
	{.name = "rack-power",
		.heading = "Nodes of a rack",
		JM_BIND(JM_REAL, struct call, report.rack_watts),
		.unit = "W",
		.min = 0,
		.max = 1e8,
		.fallback = "0",
		.help = "power of a rack: adds how many nodes it feeds, and their throughput, by "
			"rated, maximum, 99th percentile and mean power; 0 = none"},
	{.name = "rack-reserve",
		JM_BIND(JM_REAL, struct call, report.rack_reserve),
		.needs = "rack-power",
		.unit = "%",
		.min = 0,
		.max = 99,
		.fallback = "0",
		.help = "part of the power of the rack that stays unused, such as 27%"},
	{.name = "racks",
		JM_BIND(JM_INT, struct call, report.racks),
		.needs = "rack-power",
		.min = 1,
		.max = 10000,
		.help = "racks that share their power: nodes and throughput are those of all"},
	{.name = "rated-power",
		JM_BIND(JM_REAL, struct call, report.rated_watts),
		.needs = "rack-power",
		.unit = "W",
		.min = 0,
		.max = 1e6,
		.fallback = "0",
		.help = "rated power of the node, for --rack-power"},
	{.name = NULL},
};

const struct jm_command jm_command_report = {
	.name = "report",
	.heading = "Read results",
	.summary = "tables, metrics, best settings and an HTML page from a store or JSON records",
	.usage = "[options] STORE|RECORD.json...",
	.description =
		"Summarises the records of stores and JSON files (- is standard input): "
		"throughput, power, energy per item, EDP, EDS, energy saved and slowdown "
		"against the reference, with mean and 95 % interval over repeats; the setting "
		"with the least energy among those that are at most 5 % slower "
		"(--max-slowdown); and the best setting by each metric alone, where the "
		"intervals tell settings apart.\n\n"
		"Energy is the sum of the meters of one origin that no other meter includes; "
		"estimated energy does not tell settings apart. Figures of settings that the "
		"device violated are in parentheses and are not eligible as best. Failed cases "
		"are listed with their reason. A damaged record is omitted with a warning that "
		"names it, and the exit status is then 1.",
	.example = "joulemark report sweep.db\n"
		   "joulemark report --html sweep.html sweep.db\n"
		   "joulemark report --objective power:2000W sweep.db\n"
		   "joulemark report --format csv --cases a.json b.json\n"
		   "joulemark report --format latex sweep.db >table.tex\n"
		   "joulemark report --price 0.25 --currency EUR \\\n"
		   "    --figures-from 'contract, 2026-01' \\\n"
		   "    --columns joules_per_item,cost_per_million sweep.db\n"
		   "joulemark report --published resnet50.db",
	.options = options,
	.min_args = 1,
	.max_args = -1,
	.run = run,
};
