/* SPDX-License-Identifier: Apache-2.0 */
#include "training_text.h"

#include "report/format/text.h"
#include "base/text/json.h"

#include <math.h>

static void add_top1(const json_t *record, char *out, size_t size)
{
	const json_t *all = json_object_get(record, "evaluations");
	const json_t *last = json_array_get(all, json_array_size(all) - 1);

	if (!isfinite(jm_json_real_of(last, "right")))
		return;
	jm_text_format(out, size,
		"Top-1 %.2f %% (%.0f of %.0f held-out pictures right) after step %.0f.",
		100 * jm_json_real_of(last, "accuracy"), jm_json_real_of(last, "right"),
		jm_json_real_of(last, "samples"), jm_json_real_of(last, "step"));
}

static void add_evaluations(const json_t *record, char *out, size_t size)
{
	const json_t *all = json_object_get(record, "evaluations"), *one;
	double seconds = 0;
	char text[120];
	size_t i;

	json_array_foreach(all, i, one) seconds += jm_json_real_of(one, "seconds");
	if (!json_array_size(all) || isnan(seconds))
		return;
	jm_text_format(text, sizeof(text),
		"Evaluations (%zu) took %.3g s, which the time of their phases includes.", i,
		seconds);
	jm_text_append(out, size, " ", text);
}

/* "A top1 of 0.98 was reached after 3 epochs (45 steps), 12.3 s and 345 J." */
static void add_until(const json_t *record, char *out, size_t size)
{
	const json_t *until = json_object_get(record, "until");
	double epochs = jm_json_real_of(until, "epochs"), joules = jm_json_real_of(until, "joules");
	char text[200], passes[40] = "", energy[40] = "an unknown energy";

	if (!json_is_object(until))
		return;
	if (isfinite(epochs))
		jm_text_format(passes, sizeof(passes), "%.4g epochs, ", epochs);
	if (isfinite(joules))
		jm_text_format(energy, sizeof(energy), "%.4g J", joules);
	if (json_is_true(json_object_get(until, "reached")))
		jm_text_format(text, sizeof(text),
			"A %s of %g was reached after %s%.0f steps, %.4g s and %s.",
			jm_json_text(until, "figure"), jm_json_real_of(until, "target"), passes,
			jm_json_real_of(until, "steps"), jm_json_real_of(until, "seconds"), energy);
	else
		jm_text_format(text, sizeof(text), "A %s of %g was not reached.",
			jm_json_text(until, "figure"), jm_json_real_of(until, "target"));
	jm_text_append(out, size, " ", text);
}

static void add_loading(const json_t *record, char *out, size_t size)
{
	const json_t *data = json_object_get(record, "data");
	double per_s = jm_json_real_of(data, "load_per_s");
	double joules = jm_json_real_of(data, "host_joules");
	double world = jm_json_real_of(json_object_get(record, "gang"), "world");
	double threads = jm_json_real_of(data, "threads");
	char text[320], number[40], rate[80] = "", energy[80] = "", of[40] = "";

	if (!data)
		return;
	if (world > 1)
		jm_text_format(of, sizeof(of), "Of rank 0 of %.0f: ", world);
	if (!isnan(per_s)) {
		jm_text_format(number, sizeof(number), "%.0f", per_s);
		jm_text_apart(number, sizeof(number));
		jm_text_format(rate, sizeof(rate), " (%s/s by all of them)", number);
	}
	if (!isnan(joules))
		jm_text_format(
			energy, sizeof(energy), " and %.3g J of the host (estimated)", joules);
	jm_text_format(text, sizeof(text),
		"%s%.0f pictures, those read ahead too, were read in %.3g s of %.0f thread%s%s%s, "
		"%.0f files could not be read; steps waited %.3g s for pictures.",
		of, jm_json_real_of(data, "decoded"), jm_json_real_of(data, "decode_s"), threads,
		threads == 1 ? "" : "s", rate, energy, jm_json_real_of(data, "corrupt"),
		jm_json_real_of(data, "wait_s"));
	jm_text_append(out, size, " ", text);
	if (!*jm_json_text(data, "decoder"))
		return;
	jm_text_format(text, sizeof(text),
		"%s decoded %.0f of these pictures with the GPU's engine for JPEG and %.0f with "
		"its multiprocessors.",
		jm_json_text(data, "decoder"), jm_json_real_of(data, "decoded_engine"),
		jm_json_real_of(data, "decoded_gpu"));
	jm_text_append(out, size, " ", text);
	if (!(jm_json_real_of(data, "engine_failed") > 0))
		return;
	jm_text_format(text, sizeof(text),
		"The engine failed at %.0f pictures, which others decoded with slightly other "
		"values, so the run may not be repeatable.",
		jm_json_real_of(data, "engine_failed"));
	jm_text_append(out, size, " ", text);
}

void jm_text_learnt(const json_t *record, char *out, size_t size)
{
	*out = '\0';
	add_top1(record, out, size);
	add_evaluations(record, out, size);
	add_until(record, out, size);
	add_loading(record, out, size);
}
