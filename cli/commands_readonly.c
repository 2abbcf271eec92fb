/* SPDX-License-Identifier: BSD-3-Clause */
/* commands_readonly.c -- the words of the commands that change nothing: see commands.h. */
#include "commands.h"

const struct cli_command cli_command_ls = {
    .name = "ls",
    .summary = "list the checkpoints in a directory",
    .operands = {{"ROOT", CLI_OPERAND_DIRECTORY, true}},
    .examples = {{"sidestep ls", "What lies in the current directory."},
                 {"sidestep ls --all runs/7b", "Other directories, too."},
                 {"sidestep ls --json runs/7b | jq -r '.checkpoints[] | "
                  "select(.state == \"committed\") | .path'",
                  "The paths of what can be loaded."}},
    .description =
        {"Lists what lies directly in ROOT (default: the current directory), by step, oldest "
         "first. It reads directories and small records only, never tensors, and changes "
         "nothing. Files are opened, and their sizes compared; that their bytes are right, "
         "'sidestep verify' says.",
         "A state is one of: committed (a checkpoint, ours or torch's, with all of its files), "
         "damaged (files are missing, cut short or not to be understood), saving (being written), "
         "dead (left by a killed save: 'sidestep gc' removes it), trash (being deleted), bad "
         "(failed verification and was set aside), unreadable (it, or a file in it, cannot be "
         "opened, so it may be any of these: status 12, or 1 where storage fails), complete or "
         "incomplete (what another program wrote: transformers, accelerate, torchtitan, "
         "Megatron-LM, DeepSpeed or Lightning, each with "
         "its own test), foreign (any other directory, files with tensors that are no "
         "checkpoints, and symbolic links, which are not followed). The step is the one that the "
         "checkpoint says; where it says none, that of a name like step-N, checkpoint-N, "
         "global_stepN, iter_N, epoch_N or N. What a save is, or was, to become stands in "
         "parentheses behind its hidden name.",
         "Where there are any, marks are shown: pinned; abandoned (a run went back to an older "
         "one, so this one is of a line that has ended); renamed (a series saved it under another "
         "name); how many files it shares; tags; metrics. What is abandoned or renamed is not "
         "what 'sidestep latest' or a resume takes."},
    .json = "{\"checkpoints\":[{\"name\",\"path\",\"step\",\"state\",\"bytes\",\"files\","
            "\"shared_files\",\"ranks\",\"saved_at\",\"pinned\",\"abandoned\",\"renamed\","
            "\"tags\":[tag],\"metrics\":{name:value},\"layout\",\"reason\",\"target\"}]}; what is "
            "unknown is null; saved_at is RFC 3339, UTC; shared_files are those that earlier "
            "checkpoints have, too; layout is the program whose form it has; reason says why no "
            "resume takes it, and is null only for what is committed or complete; target is the "
            "checkpoint that a save is, or was, to become.",
    .options =
        {{.id = CLI_OPTION_ALL, .letter = 'a', .name = "all", .text = "List what is foreign, too."},
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
                  "Which tensors have a NaN?"}},
    .description =
        {"CKPT may also be a file of safetensors, a directory of them, or a file of "
         "torch.save(). Prints where it comes from, then its tensors (name, dtype, shape, "
         "bytes, "
         "stored chunks) and its objects (name, stored bytes, value). GLOB selects names, with "
         "*, ? and [...] as in a shell; quote it. Values are decoded without executing "
         "anything.",
         "Names are printed with control characters and invalid UTF-8 escaped.",
         "Of a checkpoint of which files are missing or cut short, it lists what is recorded all "
         "the same, says what is wrong (damage), and has the exit status 3. Files that may not "
         "be read are no damage: it names them (not read; JSON: unread), and has the status 12, or "
         "1 where storage fails."},
    .json = "{\"path\",\"format\",\"save_id\",\"step\",\"world_size\",\"bytes\",\"shared_bytes\","
            "\"damage\",\"unread\",\"tensors\":"
            "[{\"name\",\"dtype\",\"shape\",\"bytes\",\"chunks\":[{\"offsets\",\"lengths\","
            "\"file\",\"file_offset\",\"file_bytes\"}],\"stats\":{\"elements\",\"min\",\"max\","
            "\"mean\",\"nan\",\"inf\"}}],\"objects\":[{\"name\",\"bytes\","
            "\"file\",\"file_offset\",\"file_bytes\",\"value\",\"unreadable\"}]}; value is null "
            "unless it "
            "is plain data of at most 1 MiB; unreadable says why an object cannot be "
            "read, and is there only then; stats is there with --stats; numbers that JSON lacks "
            "are the strings "
            "\"NaN\", \"Infinity\" and \"-Infinity\".",
    .options = {{.id = CLI_OPTION_TREE,
                 .letter = 't',
                 .name = "tree",
                 .text = "Nest names at their dots, with the sum of each branch."},
                {.id = CLI_OPTION_CHUNKS,
                 .letter = 'c',
                 .name = "chunks",
                 .text = "List the stored chunks of each tensor: offsets, lengths, file, place "
                         "in the file."},
                {.id = CLI_OPTION_STATS,
                 .letter = 's',
                 .name = "stats",
                 .text = "Read the tensors, and show the least and the largest element (but for "
                         "NaN), the mean of the finite ones, and how many are NaN and "
                         "infinite."},
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
                 {"sidestep latest --verify runs/7b", "Check every byte before saying so."}},
    .description =
        {"Prints the path alone: what a job should resume from. By default a checkpoint must be "
         "committed and whole in its structure (files, sizes, names, ids); one that is not is "
         "passed over for the next older one. Standard error says of each newer one why it was "
         "passed over: damaged, incomplete, left behind by a run that went back, of another run, "
         "a copy under another name. One that cannot be read now may be whole, so nothing older "
         "is taken: status 12, or 1 where storage fails.",
         "The path is printed as it is, unless standard output is a terminal: then control "
         "characters in it are escaped."},
    .json = "{\"path\",\"step\",\"saved_at\",\"age_seconds\",\"layout\",\"passed_over\":["
            "{\"path\",\"step\",\"state\",\"reason\"}]}; what is unknown is null; saved_at is RFC "
            "3339, UTC; passed_over is newest first; state and layout are as of 'sidestep ls'.",
    .options = {{.id = CLI_OPTION_VERIFY,
                 .name = "verify",
                 .text = "Read everything and check every byte against its checksum. An interrupt "
                         "stops it soon."},
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_DAMAGE | CLI_EXIT_UNSUPPORTED | CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION |
             CLI_EXIT_INTERRUPTED,
    .run = cli_latest_run,
};

const struct cli_command cli_command_verify = {
    .name = "verify",
    .summary = "check every byte of one checkpoint or of many",
    .operands = {{"PATH", CLI_OPERAND_PATH, false}},
    .examples = {{"sidestep verify runs/7b/step-100", "One checkpoint."},
                 {"sidestep verify runs/7b", "All that lies in a directory of checkpoints."},
                 {"sidestep verify model.safetensors", "What another program wrote."},
                 {"sidestep verify --json runs/7b | jq .counts", "For a program."}},
    .description =
        {"Reads everything and compares it with the checksums made when it was saved. PATH is a "
         "checkpoint, or a directory of checkpoints, in which whatever has shards or tensors is "
         "counted: ok, damaged, uncommitted (not all of it was written) or not readable. Anything "
         "but ok makes the exit status not 0. Saves that are under way, or were killed ('sidestep "
         "gc' removes those), are named and are no failure; one that a resume has set aside as "
         "damaged is checked like any other.",
         "Checkpoints that torch wrote carry fewer checksums: there it checks structure, coverage, "
         "and CRC32 where it was written. Of other programs' (transformers, accelerate, Lightning, "
         "Megatron-LM, DeepSpeed), and of files with tensors, it goes through what it knows: DCPs "
         "in directories, torch.save() by CRC32, safetensors by their structure. What has no "
         "checksums is read to its end, and named with what it is.",
         "Each problem is one line: file, name, kind, message. A kind is one of: missing, size, "
         "hash, format, unsafe, id, coverage: damage; incomplete: another program did not write "
         "all of its checkpoint (status 4); permission, io: it could not be read, which "
         "says nothing of what is there (status 12, or 1). The first 1000 are listed, the rest "
         "counted. Of a file that is too short, what lies before its end is checked. Nothing is "
         "changed. An interrupt stops it soon."},
    .json =
        "{\"ok\",\"checked_bytes\",\"problems\":[{\"file\",\"name\",\"kind\",\"message\"}],"
        "\"unlisted\",\"unchecked\":[{\"file\",\"what\"}]}; for a directory of checkpoints "
        "{\"ok\",\"checked_bytes\",\"checkpoints\":[{\"path\",\"ok\",\"checked_bytes\","
        "\"problems\",\"unlisted\",\"unchecked\",\"state\",\"reason\"}],\"unfinished\":["
        "{\"path\",\"state\",\"target\",\"reason\"}],\"counts\":{\"ok\",\"damaged\","
        "\"uncommitted\",\"unreadable\",\"dead\",\"saving\",\"trash\",\"other\",\"gone\"}}, "
        "with \"error\" where one could not be checked; state and reason are as of 'sidestep ls'.",
    .options = {{.id = CLI_OPTION_THREADS,
                 .letter = 'j',
                 .name = "threads",
                 .argument = "N",
                 .text = "Read and hash with N threads; the default depends on the machine."},
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_DAMAGE | CLI_EXIT_UNCOMMITTED | CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION |
             CLI_EXIT_INTERRUPTED,
    .run = cli_verify_run,
};

const struct cli_command cli_command_cat = {
    .name = "cat",
    .summary = "write a tensor or an object to standard output",
    .operands = {{"CKPT", CLI_OPERAND_PATH, false}, {"NAME", CLI_OPERAND_TEXT, false}},
    .examples = {{"sidestep cat --npy runs/7b/step-100 model.norm.weight > norm.npy",
                  "A tensor for NumPy."},
                 {"sidestep cat runs/7b/step-100 model.norm.weight | sha256sum",
                  "Its bytes alone."},
                 {"sidestep cat --value runs/7b/step-100 optim.param_groups",
                  "An object as JSON."}},
    .description =
        {"Writes the whole tensor, contiguous, row-major, little-endian, whatever chunks it is "
         "stored in; or the stored bytes of an object. Every byte is verified on the way. "
         "A large tensor goes out in pieces, so memory stays small; with --npy it is verified "
         "whole before the first byte.",
         "With --value, what JSON lacks is written as {\"$bytes\":\"base64\"} and "
         "{\"$opaque\":\"description\"}; numbers that JSON lacks are the strings \"NaN\", "
         "\"Infinity\" and \"-Infinity\"; a tuple is an array."},
    .json = "The output is what it is without --json; errors are JSON.",
    .options = {{.id = CLI_OPTION_NPY,
                 .name = "npy",
                 .text = "Put a NumPy header in front (.npy, version 1.0). For bool, integers, "
                         "float16, float32, float64, complex64 and complex128; NumPy lacks the "
                         "others."},
                {.id = CLI_OPTION_VALUE,
                 .name = "value",
                 .text = "Decode an object and write it as JSON. Nothing is executed."},
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
    .operands = {{"A", CLI_OPERAND_DIRECTORY, false}, {"B", CLI_OPERAND_DIRECTORY, false}},
    .examples = {{"sidestep diff runs/7b/step-100 runs/7b/step-200", "What has changed."},
                 {"sidestep diff --json a b | jq -r '.differences[].name'",
                  "The names that are not alike."}},
    .description =
        {"Compares by name: which tensors and objects only one of them has, dtypes, shapes, "
         "and "
         "the elements of tensors, whoever wrote them and however they are sharded. Of tensors "
         "that differ: how many elements differ (in any bit), the largest absolute and "
         "relative "
         "difference (inf: one is NaN and the other is not), and where the first one is.",
         "Tensors whose stored checksums are equal are not read; what is read is verified, "
         "with bounded memory. An interrupt stops it soon. The exit status is that of diff(1): "
         "0 alike, 1 not alike, 2 trouble that has no status of its own."},
    .json = "{\"same\",\"same_count\",\"same_by_hash\",\"read_bytes\",\"differences\":["
            "{\"name\",\"kind\",\"message\",\"elements\",\"max_abs\",\"max_rel\","
            "\"first\":[index]}]}; kind is one of only_a, only_b, kind, dtype, shape, value, "
            "data; the last four are null but for data.",
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
    .summary = "watch what is being saved",
    .operands = {{"ROOT", CLI_OPERAND_DIRECTORY, true}},
    .examples = {{"sidestep watch runs/7b", "Until it is interrupted."},
                 {"sidestep watch --once --json runs/7b | jq '.saving[].seconds_left'",
                  "One look, for a program; the rate needs two."}},
    .description =
        {"Shows each save under way in ROOT (default: the current directory): how much of it "
         "is written, how fast, how long it will take, ranks, and what became of it. All of "
         "that is seen on storage: the job is not asked, and does not notice, wherever it "
         "runs.",
         "What a save will come to is taken from its files, or, until all ranks have made "
         "theirs, from the newest checkpoint in ROOT. On a terminal the lines are redrawn; "
         "elsewhere each look is printed. An interrupt ends it, with status 0. Directories that "
         "cannot be looked into are named; with --once, the status then is 12, or 1 where storage "
         "fails."},
    .json = "one line a look: {\"saving\":[{\"name\",\"path\",\"save_id\",\"step\","
            "\"owner\",\"dead\",\"ranks\",\"done\",\"failed\",\"written_bytes\","
            "\"total_bytes\",\"bytes_per_second\",\"seconds_left\",\"writers\":[{"
            "\"rank\",\"state\",\"bytes\",\"written_bytes\"}]}],\"ended\":[{\"name\","
            "\"save_id\",\"committed\"}],\"unread\":[\"path: reason\"]}; state is writing, sealed, "
            "done or "
            "failed; committed is null where what is there cannot be read.",
    .options = {{.id = CLI_OPTION_INTERVAL,
                 .letter = 'i',
                 .name = "interval",
                 .argument = "TIME",
                 .text = "How often to look (1s)."},
                {.id = CLI_OPTION_ONCE, .name = "once", .text = "Look once."},
                CLI_END_OPTIONS},
    .exits = CLI_EXIT_NOT_FOUND | CLI_EXIT_PERMISSION,
    .run = cli_watch_run,
};
