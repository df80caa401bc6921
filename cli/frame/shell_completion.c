/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Completion scripts. bash and zsh get one table of words per command: its options, and for 'run'
 * and 'describe' the workloads and models. fish gets one line per word, with its description. Words
 * with which a measured command begins are completed as the shell completes commands.
 */
#include "shell_completion.h"
#include "cli/frame/common_options.h"
#include "engine/graph/model.h"
#include "run/workload.h"

#include <string.h>

/* What follows a command besides its options. */
enum follows { NOTHING, FILES, WORK, MODELS, COMMANDS, RUN };

static enum follows follows_of(const struct jm_command *cmd)
{
	static const struct {
		const char *name;
		enum follows follows;
	} rows[] = {{"run", RUN}, {"measure", COMMANDS}, {"jpwr", COMMANDS}, {"report", FILES},
		{"compare", FILES}, {"check", FILES}, {"merge", FILES}, {"query", FILES},
		{"plan", FILES}, {"describe", MODELS}, {"help", WORK}, {"set", COMMANDS}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
		if (!strcmp(rows[i].name, cmd->name))
			return rows[i].follows;
	return NOTHING;
}

typedef void word_fn(FILE *out, const struct jm_command *cmd, const char *word, const char *help);

static void each_option(
	const struct jm_command *cmd, const struct jm_option *rows, FILE *out, word_fn *put)
{
	char word[80];

	for (const struct jm_option *o = rows; o && o->name; o++) {
		snprintf(word, sizeof(word), "--%s", o->name);
		put(out, cmd, word, o->help);
	}
}

/* Those of all models, each name once: which model will be named is not known yet. */
static void each_model_option(const struct jm_command *cmd, FILE *out, word_fn *put)
{
	for (int i = 0; jm_models[i]; i++)
		for (const struct jm_option *o = jm_models[i]->options; o->name; o++) {
			const struct jm_option one[] = {*o, {0}};
			int first = 0;

			while (!jm_option_find(jm_models[first]->options, o->name))
				first++;
			if (first == i)
				each_option(cmd, one, out, put);
		}
}

static void each_model(const struct jm_command *cmd, FILE *out, word_fn *put)
{
	for (int i = 0; jm_models[i]; i++) {
		put(out, cmd, jm_models[i]->name, jm_models[i]->summary);
		for (const struct jm_preset *p = jm_models[i]->presets; p && p->name; p++)
			put(out, cmd, p->name, p->summary);
	}
}

static void each_word(const struct jm_command *cmd, FILE *out, word_fn *put)
{
	enum follows follows = follows_of(cmd);

	each_option(cmd, cmd->options, out, put);
	each_option(cmd, jm_common_options, out, put);
	if (follows == MODELS)
		each_model_option(cmd, out, put);
	for (int i = 0; (follows == RUN || follows == WORK) && jm_workloads[i]; i++)
		put(out, cmd, jm_workloads[i]->name, jm_workloads[i]->summary);
	if (follows == RUN || follows == WORK || follows == MODELS)
		each_model(cmd, out, put);
}

/* ---- bash, and zsh by its bashcompinit ---- */

static void put_word(FILE *out, const struct jm_command *cmd, const char *word, const char *help)
{
	(void)cmd;
	(void)help;
	fprintf(out, " %s", word);
}

static void print_case(const struct jm_command *cmd, FILE *out)
{
	enum follows follows = follows_of(cmd);

	fprintf(out, "\t%s) words='", cmd->name);
	each_word(cmd, out, put_word);
	fprintf(out, "'; more='%s' ;;\n",
		follows == FILES      ? "-f"
		: follows == COMMANDS ? "-c"
		: follows == RUN      ? "-c -f"
				      : "");
}

/*
 * $1 the program, $2 the word at the cursor, $3 the word before it, $4 the command. The program
 * itself gives the values, since they are those of this machine; false: it has none.
 */
static const char bash_values[] =
	"_joulemark_values() {\n"
	"\tlocal option= value=\"$2\" base= keep\n"
	"\tcase \"$2\" in\n"
	"\t--*=*) option=\"${2%%=*}\"; value=\"${2#*=}\" ;;\n"
	"\t-*) return 1 ;;\n"
	"\t*) case \"$3\" in --*) option=\"$3\" ;; esac ;;\n"
	"\tesac\n"
	"\tcase \"$4:$2\" in\n"
	"\tset:*|get:*) option=\"${option:---set}\" ;;\n"
	"\tcompare:*:*) option=\"--${2%:*}:\"; value=\"${2##*:}\" ;;\n"
	"\tesac\n"
	"\t[ -n \"$option\" ] || return 1\n"
	"\tcase \"$value\" in *,*) base=\"${value%,*},\" ;; esac\n"
	"\tCOMPREPLY=($(compgen -P \"$base\" -W \"$(\"$1\" help --values \"${option#--}\" "
	"\"$4\" 2>/dev/null)\" -- \"${value##*,}\"))\n"
	"\t[ ${#COMPREPLY[@]} -gt 0 ] || return 1\n"
	"\tcase \"$value\" in *:*) keep=\"${value%\"${value##*:}\"}\"; "
	"COMPREPLY=(\"${COMPREPLY[@]#\"$keep\"}\") ;; esac\n"
	"\tcase \"${COMPREPLY[0]}\" in *=) compopt -o nospace 2>/dev/null ;; esac\n"
	"\treturn 0\n"
	"}\n";

/* The shell splits a word at ':' and '=' (COMP_WORDBREAKS); here it is put together again. */
static const char bash_word[] =
	"\twhile [ $i -gt 2 ]; do\n"
	"\t\tcase \"${COMP_WORDS[i]}|${COMP_WORDS[i-1]}\" in [:=]*|*\\|[:=]) ;; *) break ;; esac\n"
	"\t\ti=$((i - 1)); current=\"${COMP_WORDS[i]}$current\"\n"
	"\tdone\n"
	"\t_joulemark_values \"${1:-joulemark}\" \"$current\" \"${COMP_WORDS[i-1]}\" "
	"\"${COMP_WORDS[1]}\" && return\n";

static void print_bash(const struct jm_command *const *commands, FILE *out)
{
	fputs(bash_values, out);
	fprintf(out, "_joulemark() {\n"
		     "\tlocal words= more= i=$COMP_CWORD current=\"${COMP_WORDS[COMP_CWORD]}\"\n"
		     "\tif [ \"$COMP_CWORD\" = 1 ]; then\n\t\tCOMPREPLY=($(compgen -W '");
	for (int i = 0; commands[i]; i++)
		if (!commands[i]->hidden)
			fprintf(out, "%s ", commands[i]->name);
	fprintf(out, "--help --version' -- \"$current\"))\n\t\treturn\n\tfi\n");
	fputs(bash_word, out);
	fprintf(out, "\tcase \"${COMP_WORDS[1]}\" in\n");
	for (int i = 0; commands[i]; i++)
		if (!commands[i]->hidden)
			print_case(commands[i], out);
	fprintf(out, "\tesac\n"
		     "\tcase \"$current\" in -*) more= ;; esac\n"
		     "\tCOMPREPLY=($(compgen $more -W \"$words\" -- \"$current\"))\n"
		     "}\ncomplete -o default -F _joulemark joulemark\n");
}

/* ---- fish ---- */

/* In single quotes, where a backslash and a quote are escaped. */
static void put_quoted(FILE *out, const char *text)
{
	fputc('\'', out);
	for (; *text; text++)
		fprintf(out, *text == '\'' || *text == '\\' ? "\\%c" : "%c", *text);
	fputc('\'', out);
}

static bool takes_value(const struct jm_command *cmd, const char *name)
{
	const struct jm_option *row = jm_option_find(cmd->options, name);

	return row && row->type != JM_FLAG && !row->bare;
}

static void put_fish(FILE *out, const struct jm_command *cmd, const char *word, const char *help)
{
	bool option = !strncmp(word, "--", 2);

	fprintf(out, "complete -c joulemark -n '__fish_seen_subcommand_from %s' %s %s -d ",
		cmd->name, option ? "-l" : "-a", word + (option ? 2 : 0));
	put_quoted(out, help);
	if (option && takes_value(cmd, word + 2))
		fprintf(out, " -r -a '(joulemark help --values %s %s 2>/dev/null)'", word + 2,
			cmd->name);
	fputc('\n', out);
}

static void print_fish(const struct jm_command *const *commands, FILE *out)
{
	fprintf(out, "complete -c joulemark -f\n");
	for (int i = 0; commands[i]; i++) {
		if (commands[i]->hidden)
			continue;
		fprintf(out, "complete -c joulemark -n __fish_use_subcommand -a %s -d ",
			commands[i]->name);
		put_quoted(out, commands[i]->summary);
		fputc('\n', out);
		each_word(commands[i], out, put_fish);
		if (follows_of(commands[i]) >= COMMANDS || follows_of(commands[i]) == FILES)
			fprintf(out,
				"complete -c joulemark -n '__fish_seen_subcommand_from %s' -F\n",
				commands[i]->name);
	}
}

void jm_completion_print(const struct jm_command *const *commands, enum jm_shell shell, FILE *out)
{
	if (shell == JM_SHELL_FISH) {
		print_fish(commands, out);
		return;
	}
	if (shell == JM_SHELL_ZSH)
		fprintf(out, "#compdef joulemark\nautoload -Uz bashcompinit && bashcompinit\n");
	print_bash(commands, out);
	/* as a file of fpath it is this function, and its first call completes */
	if (shell == JM_SHELL_ZSH)
		fprintf(out, "if [ \"${funcstack[1]}\" = _joulemark ]; then\n"
			     "\t_bash_complete -o default -F _joulemark\nfi\n");
}
