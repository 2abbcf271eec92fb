/* SPDX-License-Identifier: BSD-3-Clause */
/* commands_readonly.c -- the help texts of the commands that change nothing; see commands.h. */
#include "commands.h"

const struct cli_command cli_command_ls = {
    .name = "ls",
    .summary = "list the checkpoints in a directory",
    .operands = {{"ROOT", CLI_OPERAND_DIRECTORY, true}},
    .examples = {{"sidestep ls", "The checkpoints in the current directory."},
                 {"sidestep ls --all runs/7b", "Other directories, too."},
                 {"sidestep ls --json runs/7b | jq -r '.checkpoints[] | "
                  "select(.state == \"committed\") | .path'",
                  "The paths of all that can be loaded."}},
    .description =
        {"Lists the contents of ROOT (default: the current directory), by step, oldest first. It "
         "reads only directories and small records, never tensors, and changes nothing. It opens "
         "files and compares their sizes. To check their bytes, use 'sidestep verify'.",
         "A state is one of: committed (a checkpoint, ours or torch's, with all of its files); "
         "damaged (files are missing, truncated or cannot be parsed); saving (being written); dead "
         "(left by a killed save; 'sidestep gc' removes it); trash (being deleted); bad (failed "
         "verification and was set aside); unreadable (it, or a file in it, cannot be opened, so "
         "it may be any of these: status 12, or 1 where storage fails); complete or incomplete "
         "(written by another program: transformers, accelerate, torchtitan or Lightning, each "
         "with its own check); foreign (any other directory, files "
         "with tensors that are not checkpoints, and symbolic links to other entries or to "
         "nothing; a link that leads elsewhere counts as what it leads to). The "
         "step is the one that the checkpoint records. If it records none, the step is that of a "
         "name like step-N, checkpoint-N, global_stepN, iter_N, epoch_N or N. A save has a hidden "
         "name; the checkpoint that it makes follows in parentheses.",
         "Annotations are shown if there are any: pinned; abandoned (a run went back to an older "
         "checkpoint and left this one behind); renamed (a series saved it under another name); "
         "the number of shared files; tags; metrics. 'sidestep latest' and a resume do not choose "
         "an abandoned or renamed checkpoint.",
         "If a run deletes old checkpoints here, KEPT says why each one stays, as the run would "
         "decide now: newest; last; every (its step is kept); best (by a metric); apart (it shares "
         "no file with the newest); pinned; only (no other is valid); not-ours; no-step (its name "
         "is not one of the series); damaged; unreadable; unknown (no run has recorded what it "
         "keeps); all (nothing is deleted); - (the next prune deletes it)."},
    .json = "{\"checkpoints\":[{\"name\",\"path\",\"step\",\"state\",\"bytes\",\"files\","
            "\"shared_files\",\"small_files\",\"small_bytes\",\"ranks\",\"saved_at\",\"pinned\","
            "\"abandoned\",\"renamed\",\"kept\",\"kept_because\","
            "\"tags\":[tag],\"metrics\":{name:value},\"layout\",\"reason\",\"target\"}]}; unknown "
            "values are null; saved_at is RFC 3339, UTC; shared_files counts files that earlier "
            "checkpoints share; small_files and small_bytes are parts of files and bytes; layout "
            "is the program that uses this form; reason says why a "
            "resume does not choose it, and is null only if it is committed or complete; kept "
            "is the word under KEPT, and kept_because says it in a sentence; target is the "
            "checkpoint that a save makes or made. With --mirror also level (near, mirror, "
            "both), and beside checkpoints: mirror, its path, and outdated: the run went on "
            "elsewhere.",
    .options =
        {{.id = CLI_OPTION_ALL, .letter = 'a', .name = "all", .text = "List foreign entries, too."},
         CLI_MIRROR_OPTION("List the mirror of ROOT, too: at which level each checkpoint is (near, "
                           "mirror or both), and how far the mirror is behind."),
         CLI_END_OPTIONS},
    .exits = CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION,
    .run = cli_ls_run,
};

const struct cli_command cli_command_show = {
    .name = "show",
    .summary = "show what is in a checkpoint",
    .operands = {{"CKPT", CLI_OPERAND_PATH, false}, {"GLOB", CLI_OPERAND_TEXT, true}},
    .examples = {{"sidestep show runs/7b/step-100", "Tensors and objects."},
                 {"sidestep show runs/7b/step-100 'model.layers.0.*'", "Some of them."},
                 {"sidestep show --tree runs/7b/step-100", "Nested, with sums."},
                 {"sidestep show --json --stats model.safetensors | jq '.tensors[] | "
                  "select(.stats.nan > 0) | .name'",
                  "The tensors that contain a NaN."}},
    .description =
        {"CKPT may also be a file of safetensors, a directory of them, or a file of "
         "torch.save(). Prints its format, its tensors (name, dtype, shape, bytes, stored chunks, "
         "and the class, where only PyTorch can decode it), "
         "its objects (name, stored bytes, value) and its small files (name, size, rank). GLOB "
         "selects names, with *, ? and [...] as in a shell; quote it. Values are decoded without "
         "executing anything.",
         "Names are printed with control characters and invalid UTF-8 escaped.",
         "If files of a checkpoint are missing or truncated, it still lists what is recorded, says "
         "what is wrong (damage), and exits with status 3. Files that may not be read are not "
         "damage: it names them (not read; JSON: unread), and exits with status 12, or 1 where "
         "storage fails."},
    .json =
        "{\"path\",\"format\",\"save_id\",\"step\",\"world_size\",\"bytes\",\"shared_bytes\","
        "\"damage\",\"unread\",\"tensors\":"
        "[{\"name\",\"dtype\",\"class\",\"shape\",\"bytes\",\"chunks\":[{\"offsets\",\"lengths\","
        "\"file\",\"file_offset\",\"file_bytes\",\"transform\"}],\"stats\":{\"elements\","
        "\"min\",\"max\","
        "\"mean\",\"nan\",\"inf\"}}],\"objects\":[{\"name\",\"bytes\","
        "\"file\",\"file_offset\",\"file_bytes\",\"transform\",\"value\",\"unreadable\"}],"
        "\"files\":[{\"name\",\"bytes\",\"rank\",\"alias\",\"stored\",\"sha256\"}]}; "
        "class is null for a plain tensor; value is null "
        "unless it is plain data of at most 1 MiB; unreadable is present if an object cannot "
        "be read, and says why; stats is present with --stats; numbers that JSON lacks are the "
        "strings \"NaN\", \"Infinity\" and \"-Infinity\".",
    .options = {{.id = CLI_OPTION_TREE,
                 .letter = 't',
                 .name = "tree",
                 .text = "Nest names at their dots, with the sum of each branch."},
                {.id = CLI_OPTION_CHUNKS,
                 .letter = 'c',
                 .name = "chunks",
                 .text = "List the stored chunks of each tensor: offsets, lengths, file, offset in "
                         "the file."},
                {.id = CLI_OPTION_STATS,
                 .letter = 's',
                 .name = "stats",
                 .text = "Read the tensors, and show the smallest and the largest element (except "
                         "NaN), the mean of the finite ones, and the numbers of NaN and "
                         "infinities."},
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_DAMAGE | CLI_EXIT_UNCOMMITTED | CLI_EXIT_UNSUPPORTED | CLI_EXIT_NOT_FOUND |
             CLI_EXIT_PERMISSION,
    .run = cli_show_run,
};

const struct cli_command cli_command_latest = {
    .name = "latest",
    .summary = "print the path of the newest valid checkpoint",
    .operands = {{"ROOT", CLI_OPERAND_DIRECTORY, false}},
    .examples = {{"train --resume \"$(sidestep latest runs/7b)\"", "Resume where it stopped."},
                 {"sidestep latest --verify runs/7b", "Check every byte first."}},
    .description =
        {"Prints only the path: the checkpoint from which a job should resume. By default a "
         "checkpoint must be committed and whole in its structure (files, sizes, names, ids). "
         "Otherwise it is passed over for the next older one. Standard error says why each newer "
         "one was passed over: damaged, incomplete, left behind by a run that went back, of "
         "another run, a copy under another name. If a checkpoint cannot be read now, it may be "
         "whole, so no older one is chosen: status 12, or 1 where storage fails.",
         "The path is printed unchanged. Only on a terminal, its control characters are escaped."},
    .json =
        "{\"path\",\"step\",\"saved_at\",\"age_seconds\",\"kept\",\"kept_because\","
        "\"layout\",\"passed_over\":[{\"path\",\"step\",\"state\",\"reason\"}]}; unknown values "
        "are null; saved_at is RFC 3339, UTC; passed_over is newest first; state, kept and "
        "layout are those of 'sidestep ls'. With --mirror also level: near or mirror.",
    .options = {{.id = CLI_OPTION_VERIFY,
                 .name = "verify",
                 .text = "Read everything and check every byte against its checksum. An interrupt "
                         "stops it soon."},
                CLI_MIRROR_OPTION("Look at ROOT and at its mirror, and print the one that a resume "
                                  "takes, of ROOT if both have it. A mirror that cannot be read is "
                                  "an error."),
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_DAMAGE | CLI_EXIT_UNSUPPORTED | CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION |
             CLI_EXIT_INTERRUPTED,
    .run = cli_latest_run,
};

const struct cli_command cli_command_verify = {
    .name = "verify",
    .summary = "check every byte of one or many checkpoints",
    .operands = {{"PATH", CLI_OPERAND_PATH, false}},
    .examples = {{"sidestep verify runs/7b/step-100", "One checkpoint."},
                 {"sidestep verify runs/7b", "All checkpoints in a directory."},
                 {"sidestep verify model.safetensors", "A file of another program."},
                 {"sidestep verify --json runs/7b | jq .counts", "For a program."}},
    .description =
        {"Reads everything and compares it with the checksums that the save recorded. PATH is a "
         "checkpoint, or a directory of checkpoints. In a directory it counts every entry with "
         "shards or tensors: ok, damaged, uncommitted (not written completely) or not readable. "
         "If one is not ok, the exit status is not 0. Saves that are under way or were killed "
         "('sidestep gc' removes those) are named, and are not failures. A checkpoint that a "
         "resume has set aside as damaged is checked like any other.",
         "Checkpoints that torch wrote contain fewer checksums: their structure, their coverage, "
         "and CRC32 where it was written are checked. Checkpoints of other programs (transformers, "
         "accelerate, torchtitan, Lightning) and files with tensors are checked as far "
         "as their format is known: DCPs in directories, torch.save() by CRC32, safetensors by "
         "their structure. A file without checksums is read to its end, and named with its format.",
         "Each problem is one line: file, name, kind, message. These kinds are damage: missing, "
         "size, hash, format, unsafe, id, coverage. Kind incomplete: another program did not write "
         "all of its checkpoint (status 4). Kinds permission and io: it could not be read, and may "
         "be whole (status 12, or 1). The first 1000 problems are listed, the rest counted. If a "
         "file is too short, what is before its end is checked. Nothing is changed. An interrupt "
         "stops it soon."},
    .json =
        "{\"ok\",\"checked_bytes\",\"problems\":[{\"file\",\"name\",\"kind\",\"message\"}],"
        "\"unlisted\",\"unchecked\":[{\"file\",\"what\"}]}; for a directory of checkpoints "
        "{\"ok\",\"checked_bytes\",\"checkpoints\":[{\"path\",\"ok\",\"checked_bytes\","
        "\"problems\",\"unlisted\",\"unchecked\",\"state\",\"reason\"}],\"unfinished\":["
        "{\"path\",\"state\",\"target\",\"reason\"}],\"counts\":{\"ok\",\"damaged\","
        "\"uncommitted\",\"unreadable\",\"dead\",\"saving\",\"trash\",\"other\",\"gone\"}}, "
        "with \"error\" if one could not be checked; state and reason are those of 'sidestep ls'.",
    .options = {{.id = CLI_OPTION_THREADS,
                 .letter = 'j',
                 .name = "threads",
                 .argument = "N",
                 .text = "Read and hash with N threads; the default depends on the machine."},
                CLI_MIRROR_OPTION("PATH is a root: verify what is there and what is at its "
                                  "mirror."),
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_DAMAGE | CLI_EXIT_UNCOMMITTED | CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION |
             CLI_EXIT_INTERRUPTED,
    .run = cli_verify_run,
};

const struct cli_command cli_command_cat = {
    .name = "cat",
    .summary = "write a tensor, an object or a small file to standard output",
    .operands = {{"CKPT", CLI_OPERAND_PATH, false}, {"NAME", CLI_OPERAND_TEXT, false}},
    .examples = {{"sidestep cat --npy runs/7b/step-100 model.norm.weight > norm.npy",
                  "A tensor for NumPy."},
                 {"sidestep cat runs/7b/step-100 model.norm.weight | sha256sum", "Only its bytes."},
                 {"sidestep cat --value runs/7b/step-100 optim.param_groups", "An object as JSON."},
                 {"sidestep cat --file runs/7b/step-100 trainer_state.json", "A small file."}},
    .description =
        {"Writes the whole tensor, contiguous, row-major, little-endian, however it is stored; or "
         "the stored bytes of an object or of a small file. Every byte is verified. A large tensor "
         "is written in "
         "pieces, so memory stays small; with --npy it is verified completely before the first "
         "byte.",
         "With --value, values that JSON lacks are written as {\"$bytes\":\"base64\"} and "
         "{\"$opaque\":\"description\"}; numbers that JSON lacks are the strings \"NaN\", "
         "\"Infinity\" and \"-Infinity\"; a tuple is an array."},
    .json = "The output is the same as without --json; errors are JSON.",
    .options = {{.id = CLI_OPTION_NPY,
                 .name = "npy",
                 .text = "Write a NumPy header first (.npy, version 1.0). For bool, integers, "
                         "float16, float32, float64, complex64 and complex128; NumPy lacks the "
                         "others."},
                {.id = CLI_OPTION_VALUE,
                 .name = "value",
                 .text = "Decode an object and write it as JSON. Nothing is executed."},
                {.id = CLI_OPTION_FILE,
                 .name = "file",
                 .text = "NAME is a small file that was saved with the checkpoint."},
                {.id = CLI_OPTION_FORCE,
                 .letter = 'f',
                 .name = "force",
                 .text = "Write bytes even to a terminal."},
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_DAMAGE | CLI_EXIT_UNCOMMITTED | CLI_EXIT_UNSUPPORTED | CLI_EXIT_NOT_FOUND |
             CLI_EXIT_PERMISSION | CLI_EXIT_SPACE,
    .run = cli_cat_run,
};

const struct cli_command cli_command_diff = {
    .name = "diff",
    .summary = "compare two checkpoints",
    .operands = {{"A", CLI_OPERAND_PATH, false}, {"B", CLI_OPERAND_PATH, false}},
    .examples = {{"sidestep diff runs/7b/step-100 runs/7b/step-200", "The changes."},
                 {"sidestep diff --json a b | jq -r '.differences[].name'",
                  "The names that differ."}},
    .description =
        {"Compares by name: tensors and objects that only one of them has, dtypes, shapes, and the "
         "elements of tensors, whichever program wrote them and however they are sharded. For each "
         "tensor that differs it prints how many elements differ (in any bit), the largest "
         "absolute and relative difference (inf: only one of the two is NaN), and the index of the "
         "first such element. A and B may also be files of safetensors, directories of them, or "
         "files of torch.save(). Of two checkpoints of ours it also compares the small files.",
         "Tensors whose stored checksums are equal are not read. All that is read is verified, "
         "with bounded memory. An interrupt stops it soon. The exit status is that of diff(1): "
         "0 the same, 1 different, 2 a failure without a status of its own."},
    .json = "{\"same\",\"same_count\",\"same_by_hash\",\"read_bytes\",\"differences\":["
            "{\"name\",\"kind\",\"message\",\"elements\",\"max_abs\",\"max_rel\","
            "\"first\":[index]}]}; kind is one of only_a, only_b, kind, dtype, shape, value, "
            "data, file; the last four are null except for data.",
    .options = {{.id = CLI_OPTION_THREADS,
                 .letter = 'j',
                 .name = "threads",
                 .argument = "N",
                 .text = "Read and compare with N threads; the default depends on the "
                         "machine."},
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_DIFFERENT | CLI_EXIT_DAMAGE | CLI_EXIT_UNCOMMITTED | CLI_EXIT_UNSUPPORTED |
             CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION | CLI_EXIT_INTERRUPTED,
    .run = cli_diff_run,
};

const struct cli_command cli_command_watch = {
    .name = "watch",
    .summary = "watch saves that are under way",
    .operands = {{"ROOT", CLI_OPERAND_DIRECTORY, true, true}},
    .examples = {{"sidestep watch runs/7b", "Until it is interrupted."},
                 {"sidestep watch runs/*", "All runs."},
                 {"sidestep watch --once --json runs/7b | jq '.saving[].seconds_left'",
                  "Look once, for a program; the rate needs two looks."}},
    .description =
        {"Shows each save under way in each ROOT (default: the current directory): how much of it "
         "is written, how fast, the time left, its ranks, and its outcome. It reads all of this "
         "from "
         "storage, so the job may run anywhere, and is not disturbed.",
         "The final size of a save is that of its files, or, until all ranks have made theirs, "
         "that of the newest checkpoint in ROOT. On a terminal each save has a bar, and below it "
         "its ranks, the slowest first, as many as there is room for; all is redrawn at each look. "
         "Elsewhere each look is a few lines. An interrupt ends it, with status 0. Directories "
         "that cannot be "
         "looked into are named; with --once, the status is then 12, or 1 where storage fails. A "
         "ROOT "
         "that cannot be looked at ends it, but not if there are several."},
    .json =
        "one line per root and look: {\"root\",\"saving\":[{\"name\",\"path\",\"save_id\",\"step\","
        "\"owner\",\"dead\",\"ranks\",\"done\",\"failed\",\"written_bytes\","
        "\"total_bytes\",\"bytes_per_second\",\"seconds_left\",\"writers\":[{"
        "\"rank\",\"state\",\"bytes\",\"written_bytes\"}]}],\"ended\":[{\"name\","
        "\"save_id\",\"committed\"}],\"unread\":[\"path: reason\"],\"error\"}; state is writing, "
        "sealed, "
        "done or failed; committed is null if the path cannot be read; error says why a root "
        "cannot be looked "
        "at. With --mirror also level: near, or mirror, whose path is then root.",
    .options = {{.id = CLI_OPTION_INTERVAL,
                 .letter = 'i',
                 .name = "interval",
                 .argument = "TIME",
                 .text = "How often to look (1s)."},
                {.id = CLI_OPTION_ONCE, .name = "once", .text = "Look once."},
                CLI_MIRROR_OPTION("Watch the mirror of each ROOT, too: what is being sent there."),
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION,
    .run = cli_watch_run,
};

const struct cli_command cli_command_check = {
    .name = "check",
    .summary = "tell a monitor whether checkpoints are young and whole",
    .operands = {{"ROOT", CLI_OPERAND_DIRECTORY, false, true}},
    .examples = {{"sidestep check --max-age 30m runs/7b", "For cron, Nagios or Icinga."},
                 {"sidestep check --max-age 2h --verify newest runs/*",
                  "Several runs; every byte of each newest checkpoint is read."},
                 {"sidestep check --json runs/7b | jq -r '.roots[].findings[].message'",
                  "What is not as it should be."}},
    .description =
        {"Looks at each ROOT, and prints one line: the worst first, and performance data behind "
         "'|'. Exit status and line are those of monitoring plug-ins. What cannot be read is "
         "unknown, and never ok. Of several findings, critical is the worst, then unknown, then "
         "warning. Everything is read from storage at each look, so it may run where no job runs, "
         "and is right after any restart. It reads no tensors unless --verify says so, and changes "
         "nothing.",
         "Critical: there is no checkpoint, none that is valid, or the newest is older than "
         "--max-age. Unknown: a directory, or a checkpoint that might be the newest, cannot be "
         "read. Warning: a checkpoint is damaged or was set aside; fewer are kept than --min-kept; "
         "the file system has less space than the newest checkpoint takes; a killed save was not "
         "removed for a day. A save under way, and one that a preemption killed, are no finding."},
    .json =
        "{\"status\",\"roots\":[{\"root\",\"status\",\"newest\",\"step\",\"saved_at\","
        "\"age_seconds\",\"kept\",\"bytes\",\"free_bytes\",\"findings\":[{\"status\","
        "\"message\"}]}]}; a status is OK, WARNING, CRITICAL or UNKNOWN; findings are worst "
        "first; unknown values are null; saved_at is RFC 3339, UTC. With --mirror, roots has two "
        "entries for each ROOT, with level (near, mirror) and place, the path that was looked "
        "at.",
    .options = {{.id = CLI_OPTION_MAX_AGE,
                 .name = "max-age",
                 .argument = "TIME",
                 .text =
                     "How old the newest checkpoint may be: 90s, 30m, 6h, 2d. Default: any age."},
                {.id = CLI_OPTION_MIN_KEPT,
                 .name = "min-kept",
                 .argument = "N",
                 .text = "How many checkpoints a resume should be able to choose from (1)."},
                {.id = CLI_OPTION_VERIFY,
                 .name = "verify",
                 .argument = "WHICH",
                 .choices = {"structure", "newest", "sample", "all"},
                 .text =
                     "Read and check every byte: of no checkpoint (structure, the default), of the "
                     "newest, of the newest and one other (sample; another one each hour), or of "
                     "all."},
                CLI_MIRROR_OPTION("Demand the same of the mirror of each ROOT: a mirror that lags "
                                  "more than --max-age is critical, one that cannot be read is "
                                  "unknown."),
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_MONITOR,
    .run = cli_check_run,
};

const struct cli_command cli_command_metrics = {
    .name = "metrics",
    .summary = "print metrics for Prometheus",
    .operands = {{"ROOT", CLI_OPERAND_DIRECTORY, false, true}},
    .examples = {{"sidestep metrics runs/7b", "All metrics of a root."},
                 {"sidestep metrics --out /var/lib/node_exporter/sidestep.prom runs/*",
                  "From cron, for the textfile collector of node_exporter."},
                 {"sidestep metrics --listen 9188 runs/*",
                  "Answer Prometheus, which scrapes 127.0.0.1:9188."}},
    .description =
        {"Prints OpenMetrics text, which Prometheus reads. Everything is read from storage at each "
         "call. No value is kept from an earlier one, and a checkpoint that was deleted has no "
         "series. A root that cannot be listed has sidestep_up 0, and no other values but "
         "sidestep_health.",
         "The labels are root and state, with --mirror also level. There are about 20 series for "
         "each root, whatever the "
         "number of ranks and checkpoints.",
         "With --listen it answers requests for http://ADDR/metrics until it is interrupted, each "
         "with a look that began after the request. Requests that come while it looks share the "
         "next look; there is one a second at most. With --out, too, it writes the file first, "
         "once; then a port in use is only a warning."},
    .json = "The output is the same as without --json; errors are JSON.",
    .options = {CLI_OUT_OPTION(": whoever reads it finds all of the old text or all of the new."),
                {.id = CLI_OPTION_LISTEN,
                 .name = "listen",
                 .argument = "ADDR",
                 .text = "Answer HTTP requests at ADDR: PORT, HOST:PORT or [HOST]:PORT; port 0 "
                         "is one that is free. Without HOST, only this machine is answered; with "
                         "0.0.0.0, whoever reaches it. There is no password and no TLS."},
                CLI_MIRROR_OPTION("Print the same of the mirror of each ROOT, with the label level "
                                  "(near, mirror). One that cannot be read has sidestep_up 0."),
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_UNSUPPORTED | CLI_EXIT_LOCKED | CLI_EXIT_PERMISSION | CLI_EXIT_SPACE,
    .run = cli_metrics_run,
};

const struct cli_command cli_command_events = {
    .name = "events",
    .summary = "print what a series has done",
    .operands = {{"ROOT", CLI_OPERAND_DIRECTORY}},
    .examples = {{"sidestep events runs/7b", "All that is kept, the oldest first."},
                 {"sidestep events --follow runs/7b", "And what comes, until Ctrl-C."},
                 {"sidestep events --json runs/7b | jq -r 'select(.event==\"aborted\").message'",
                  "Why saves failed."}},
    .description =
        {"Prints the events of a series: opened, resumed, save started, committed, aborted, "
         "checkpoint deleted and so on. A series in a directory keeps them in ROOT/.sidestep, "
         "without being asked, in files of bounded size, so the oldest go first. A save that was "
         "killed has begun and has no end.",
         "Lines are sorted by the clocks of the hosts that wrote them. Times are in UTC."},
    .json = "The lines as they are kept, each an object; sidestep's SERIES-REFERENCE.md has the "
            "fields.",
    .options = {{.id = CLI_OPTION_FOLLOW,
                 .letter = 'f',
                 .name = "follow",
                 .text = "Go on with what comes, until interrupted."},
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION | CLI_EXIT_UNSUPPORTED,
    .run = cli_events_run,
};

const struct cli_command cli_command_trace = {
    .name = "trace",
    .summary = "make a trace of saves for Perfetto",
    .operands = {{"ROOT", CLI_OPERAND_DIRECTORY}},
    .examples = {{"sidestep trace -o trace.json runs/7b",
                  "Open the file in ui.perfetto.dev or chrome://tracing."}},
    .description =
        {"Prints the events of a series (see sidestep-events(1)) as a trace: each rank is a "
         "process, with the calls of saves on the training's thread, and staging, writing and the "
         "commit in the background. Other events are moments. What an event says is in its "
         "arguments."},
    .json = "The output is the same as without --json; errors are JSON.",
    .options = {CLI_OUT_OPTION("."), CLI_END_OPTIONS},
    .exits = CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION | CLI_EXIT_UNSUPPORTED | CLI_EXIT_SPACE,
    .run = cli_trace_run,
};

const struct cli_command cli_command_report = {
    .name = "report",
    .summary = "make a page about a series",
    .operands = {{"ROOT", CLI_OPERAND_DIRECTORY}},
    .examples = {{"sidestep report -o report.html runs/7b", "One file, for any browser."}},
    .description =
        {"Prints one HTML page without scripts or anything from elsewhere: what is not as it "
         "should be, the checkpoints and why they are kept, saves and resumes over time, what "
         "checkpoints have cost the training, which interval would cost least, and the last "
         "events. Nothing reads tensors."},
    .json = "The output is the same as without --json; errors are JSON.",
    .options = {CLI_OUT_OPTION("."), CLI_END_OPTIONS},
    .exits = CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION | CLI_EXIT_SPACE,
    .run = cli_report_run,
};
