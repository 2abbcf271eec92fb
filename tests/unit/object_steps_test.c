/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * object_steps_test.c -- the requests of the form on object stores, each left out once, as
 * tests/torture/model_mutant.c leaves out the steps of the other forms. A request that is left out
 * is not carried out, and its client hears that all went well; a question hears that there is
 * nothing. A scenario has to notice. A request that none misses has a line in a table, which says
 * what it is for.
 *
 * Steps that are no requests have fault points, and tests beside them: the condition of the commit
 * and its probe, who is dead, what .metadata names, the lease, what silence means
 * (object_beside_test.c, object_history_test.c); the order and the version of a deletion, and the
 * marker that stops it (object_delete_test.c); the takeover (object_series_test.c). The checks of
 * shards and layouts are those of the other forms.
 */
#include <ctype.h>

#include "commit/object_delete.h"
#include "support/comm_threads.h"
#include "support/object_rig.h"
#include "support/unit.h"

#define RANKS 3
#define MAX_NAMES 128u
#define OTHER "00112233445566778899aabbccddeeff"

struct name {
    char text[160];
};

struct steps {
    struct rig rig;
    bool is_armed;
    bool has_turns;          /* requests of the same name are told apart by their turn */
    const char *skip;        /* the request that is left out; NULL: none */
    struct name names[1024]; /* of the requests so far */
    size_t count;
    bool refuses_rank_1; /* its shard cannot be written */
    bool is_liar;        /* the store says that .metadata is deleted, and it is not */
    enum sidestep_status status[RANKS], finished[RANKS];
    struct sidestep_error err[RANKS];
};

/* ---- names of requests */

static bool is_id(const char *text)
{
    return strspn(text, "0123456789abcdef") == SAVE_ID_HEX - 1;
}

/* "put .sidestep/ID/pending" */
static void name_of(const char *request, const char *key, struct name *name)
{
    size_t length = (size_t)snprintf(name->text, sizeof(name->text) - 8, "%s ", request);

    if (strncmp(key, PREFIX, strlen(PREFIX)) == 0)
        key += strlen(PREFIX);
    while (*key != '\0' && length + 12 < sizeof(name->text)) {
        bool has_id = is_id(key);
        length += (size_t)snprintf(name->text + length, sizeof(name->text) - length, "%.*s",
                                   has_id ? 2 : 1, has_id ? "ID" : key);
        key += has_id ? SAVE_ID_HEX - 1 : 1;
    }
}

static unsigned turn_of(const struct steps *s, const struct name *name)
{
    unsigned turn = 1;

    for (size_t i = 0; i < s->count; i++) {
        size_t length = strlen(name->text);
        turn += strncmp(s->names[i].text, name->text, length) == 0 &&
                (s->names[i].text[length] == '\0' || s->names[i].text[length] == '#');
    }
    return turn;
}

static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;

/* Note the request. Is it the one that is left out? */
static bool note_request(struct steps *s, const char *request, const char *key)
{
    struct name name;

    pthread_mutex_lock(&names_lock);
    name_of(request, key, &name);
    unsigned turn = turn_of(s, &name);
    if (s->has_turns && turn > 1)
        snprintf(name.text + strlen(name.text), 8, "#%u", turn);
    if (s->count < ARRAY_LENGTH(s->names))
        s->names[s->count++] = name;
    bool is_skipped = s->skip != NULL && strcmp(name.text, s->skip) == 0;
    pthread_mutex_unlock(&names_lock);
    return is_skipped;
}

static enum object_fate decide(void *context, int client, const char *request, const char *key)
{
    struct steps *s = context;

    enum object_fate fate = choose_fate(&s->rig, client, request, key);
    if (!s->is_armed || client >= 7)
        return fate;
    if (s->refuses_rank_1 && client == 1 && strstr(key, "__1_0") != NULL)
        return OBJECT_REFUSED;
    if (s->is_liar && strcmp(request, "delete") == 0 && strcmp(key, PREFIX ".metadata") == 0)
        return OBJECT_SKIPPED;
    return note_request(s, request, key) ? OBJECT_SKIPPED : fate;
}

/* ---- scenarios: what happens, and what is wrong afterwards (NULL: nothing) */

static void save_before(struct steps *s, uint64_t seed)
{
    struct sidestep_error err;

    if (save_once(&s->rig, seed, false, &err) != SIDESTEP_OK)
        fail_msg("the save before: %s", err.message);
}

static const char *check_bucket(struct steps *s, size_t objects)
{
    if (object_sim_upload_count(s->rig.bucket) != 0)
        return "an upload is left";
    return object_sim_count(s->rig.bucket) == objects ? NULL : "there are more or fewer objects";
}

static uint64_t held_or_damaged(struct steps *s, uint64_t a, uint64_t b)
{
    struct sidestep_engine *engine = rig_engine(&s->rig, NULL, 60);
    struct sidestep_error err;
    struct world world;
    uint64_t seed = 0;

    world_make(&world, 0, 1, WORLD_BY_ROWS, 1, true);
    if (sidestep_load(engine, PATH, world.state, NULL, NULL, &err) == SIDESTEP_OK)
        seed = world_check(&world, a) == 0 ? a : world_check(&world, b) == 0 ? b : 0;
    (void)sidestep_engine_close(&engine, NULL);
    world_free(&world);
    return seed;
}

static const char *save_and_check(struct steps *s)
{
    s->is_armed = true;
    s->status[0] = save_once(&s->rig, 2, false, &s->err[0]);
    s->is_armed = false;
    if (s->status[0] != SIDESTEP_OK)
        return "the save failed";
    return held_or_damaged(s, 1, 2) == 2 ? check_bucket(s, 3) : "what was saved is not there";
}

static const char *first(struct steps *s)
{
    return save_and_check(s);
}

static const char *replace(struct steps *s)
{
    save_before(s, 1);
    return save_and_check(s);
}

/* A save that looked, and is replaced before its commit, leaves what came meanwhile. */
static void save_meanwhile(struct rig *rig)
{
    struct sidestep_error err;

    rig->client = 7;
    (void)save_once(rig, 3, false, &err);
    rig->client = 0;
}

static const char *beside(struct steps *s)
{
    save_before(s, 1);
    s->rig.before = "put", s->rig.key = "/.metadata", s->rig.act = save_meanwhile;
    s->is_armed = true;
    s->status[0] = save_once(&s->rig, 2, false, &s->err[0]);
    s->is_armed = false;
    if (s->status[0] != SIDESTEP_EEXISTS)
        return "the save does not say that another one came";
    return held_or_damaged(s, 2, 3) == 3 ? check_bucket(s, 3) : "what came meanwhile is gone";
}

/* A dead save left objects and an upload; a living one, some more. */
static const char *after_the_dead(struct steps *s)
{
    static const char *const dead[] = {PREFIX ".sidestep/" OTHER "/pending",
                                       PREFIX "__0_0." OTHER ".distcp"};
    struct object_client *client = object_sim_client(s->rig.bucket, 9);
    char id[OBJECT_UPLOAD_ID_BYTES];
    struct sidestep_error err;

    save_before(s, 1);
    for (size_t i = 0; i < ARRAY_LENGTH(dead); i++)
        assert_true(object_sim_put(s->rig.bucket, dead[i], "x", 1));
    assert_int_equal(
        client->ops->upload_begin(client, PREFIX "__1_0." OTHER ".distcp", NULL, id, &err),
        SIDESTEP_OK);
    object_client_free(&client);
    object_sim_advance(s->rig.bucket, OBJECT_DEAD_SECONDS + 1);
    return save_and_check(s);
}

static int save_rank(struct sidestep_comm *comm, void *context)
{
    struct steps *s = context;
    struct sidestep_engine *engine = rig_engine(&s->rig, comm, comm->rank);
    struct sidestep_save_options options = SIDESTEP_SAVE_OPTIONS_INIT;
    struct sidestep_save *save = NULL;
    struct world world;

    options.deadline_ms = 500;
    world_make(&world, comm->rank, RANKS, WORLD_BY_ROWS, 1, false);
    world_fill(&world, 2);
    s->status[comm->rank] =
        sidestep_save_async(engine, PATH, world.state, &options, &save, &s->err[comm->rank]);
    if (s->status[comm->rank] == SIDESTEP_OK)
        s->status[comm->rank] =
            sidestep_save_wait(save, SIDESTEP_SAVE_COMMITTED, 2000, &s->err[comm->rank]);
    if (save != NULL)
        s->finished[comm->rank] = sidestep_save_finish(&save, NULL, NULL);
    (void)sidestep_engine_close(&engine, NULL);
    world_free(&world);
    return 0;
}

static const char *ranks(struct steps *s)
{
    save_before(s, 1);
    s->is_armed = true;
    assert_int_equal(comm_threads_run(RANKS, save_rank, s), 0);
    s->is_armed = false;
    for (int i = 0; i < RANKS; i++)
        if (s->status[i] != SIDESTEP_OK)
            return "a rank failed";
    return held_or_damaged(s, 1, 2) == 2 ? check_bucket(s, RANKS + 2)
                                         : "what was saved is not there";
}

static const char *a_rank_fails(struct steps *s)
{
    save_before(s, 1);
    s->is_armed = s->refuses_rank_1 = true;
    assert_int_equal(comm_threads_run(RANKS, save_rank, s), 0);
    s->is_armed = s->refuses_rank_1 = false;
    for (int i = 0; i < RANKS; i++)
        if (s->status[i] == SIDESTEP_OK)
            return "a rank did not fail";
    for (int i = 0; i < RANKS; i++)
        if (strstr(s->err[i].message, "does not answer") == NULL)
            return "a rank does not know the reason";
    return held_or_damaged(s, 1, 2) == 1 ? check_bucket(s, 3) : "the checkpoint before is gone";
}

static enum sidestep_status delete_it(struct store *store, struct sidestep_error *err)
{
    OWNED_OBJECT_DELETION deletion = {0};
    OWNED_DIR *root = NULL;

    TRY(store_dir_open(store, NULL, "s3://runs/job", &root, err));
    TRY(object_delete_look(root, "step-1", NULL, &deletion, err));
    TRY(object_delete_hide(&deletion, err));
    assert_int_equal(object_delete_rest(&deletion, NULL, NULL), SIDESTEP_OK);
    return SIDESTEP_OK;
}

static void delete_step_1(struct steps *s)
{
    struct store *store = NULL;

    assert_int_equal(
        object_store_new("runs", object_sim_client(s->rig.bucket, 0), &store, &s->err[0]),
        SIDESTEP_OK);
    s->is_armed = true;
    s->status[0] = delete_it(store, &s->err[0]);
    s->is_armed = false;
    object_store_free(&store);
}

static const char *delete (struct steps *s)
{
    save_before(s, 1);
    delete_step_1(s);
    return s->status[0] == SIDESTEP_OK ? check_bucket(s, 0) : "the deletion failed";
}

static const char *delete_from_a_liar(struct steps *s)
{
    save_before(s, 1);
    s->is_liar = true;
    delete_step_1(s);
    s->is_liar = false;
    if (s->status[0] == SIDESTEP_OK)
        return "the deletion believes the store";
    return held_or_damaged(s, 1, 1) == 1 ? check_bucket(s, 3) : "what is left is torn";
}

static const struct scenario {
    const char *name;
    const char *(*run)(struct steps *s);
    bool has_turns;
} scenarios[] = {
    {"first", first, true},   {"replace", replace, true},
    {"beside", beside, true}, {"after the dead", after_the_dead, true},
    {"ranks", ranks, false},  {"a rank fails", a_rank_fails, false},
    {"delete", delete, true}, {"delete from a liar", delete_from_a_liar, true},
};

/* ---- what nothing misses */

static const struct {
    const char *request, *why;
} needless[] = {
    {"get .metadata#2",
     "after a 412, it may be ours, because an answer was lost; and a sweep keeps what it names: "
     "object.read_back and object.named in object_beside_test.c"},
    {"get .metadata#3", "an abort keeps what it names, as a sweep does"},
    {"get .sidestep.manifest.ID", "it spares parsing .metadata, which says the same"},
    {"upload_list #2", "an abort of large shards; here each is one put. "
                       "tests/objects/test_save_faults.py kills saves"},
};

/* Requests of all scenarios, each once, and whether a scenario misses it. */
struct table {
    struct {
        struct name name;
        bool is_missed;
    } rows[MAX_NAMES];
    size_t count;
};

static bool *row_of(struct table *table, const struct name *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->rows[i].name.text, name->text) == 0)
            return &table->rows[i].is_missed;
    assert_true(table->count < MAX_NAMES);
    table->rows[table->count].name = *name;
    return &table->rows[table->count++].is_missed;
}

/* Requests that only some runs make: a rank that is late takes back what it has put. */
static bool is_of_late_ranks(const char *request)
{
    static const char *const beginnings[] = {"delete __", "delete .sidestep/ID/yes.",
                                             "delete .sidestep/ID/alive.",
                                             "delete .sidestep/ID/failed."};

    for (size_t i = 0; i < ARRAY_LENGTH(beginnings); i++)
        if (strncmp(request, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return false;
}

/* A line without a turn is about all of them. */
static bool is_about(const char *request, const struct name *name)
{
    size_t length = strchr(request, '#') != NULL ? strlen(name->text) : strcspn(name->text, "#");

    return strlen(request) == length && strncmp(request, name->text, length) == 0;
}

static const char *reason_for(const struct name *name)
{
    for (size_t i = 0; i < ARRAY_LENGTH(needless); i++)
        if (is_about(needless[i].request, name))
            return needless[i].why;
    return is_of_late_ranks(name->text) ? "a late rank takes back what it has put" : NULL;
}

/* Run a scenario without ${skip}. ${names} gets its requests, each once. */
static const char *run(const struct scenario *scenario, const char *skip, struct name *names,
                       size_t *count)
{
    struct steps *s = calloc(1, sizeof(*s));

    assert_non_null(s);
    rig_make(&s->rig, 0);
    object_sim_set_hook(s->rig.bucket, decide, s);
    s->has_turns = scenario->has_turns;
    s->skip = skip;
    const char *problem = scenario->run(s);
    for (size_t i = 0; names != NULL && i < s->count && *count < MAX_NAMES; i++) {
        size_t known = 0;
        while (known < *count && strcmp(names[known].text, s->names[i].text) != 0)
            known++;
        if (known == *count)
            names[(*count)++] = s->names[i];
    }
    object_sim_free(&s->rig.bucket);
    free(s);
    return problem;
}

static void leave_out_each(const struct scenario *scenario, struct table *table)
{
    struct name names[MAX_NAMES];
    size_t count = 0;
    const char *problem = run(scenario, NULL, names, &count);

    if (problem != NULL)
        fail_msg("%s: %s", scenario->name, problem);
    for (size_t i = 0; i < count; i++) {
        bool *is_missed = row_of(table, &names[i]);
        if (*is_missed)
            continue;
        problem = run(scenario, names[i].text, NULL, NULL);
        *is_missed = problem != NULL;
        if (problem != NULL)
            print_message("# %s without '%s': %s\n", scenario->name, names[i].text, problem);
    }
}

TEST(each_request_is_missed)
{
    struct table table = {.count = 0};
    unsigned silent = 0;

    for (size_t i = 0; i < ARRAY_LENGTH(scenarios); i++)
        leave_out_each(&scenarios[i], &table);
    for (size_t i = 0; i < table.count; i++) {
        const char *why = reason_for(&table.rows[i].name);
        if (table.rows[i].is_missed)
            continue;
        print_message("# nothing misses '%s': %s\n", table.rows[i].name.text,
                      why != NULL ? why : "WHY?");
        silent += why == NULL;
    }
    print_message("# %zu requests left out\n", table.count);
    assert_int_equal(silent, 0);
    size_t count = table.count;
    for (size_t i = 0; i < ARRAY_LENGTH(needless); i++) {
        struct name name;
        snprintf(name.text, sizeof(name.text), "%s", needless[i].request);
        (void)row_of(&table, &name);
    }
    assert_int_equal(table.count, count); /* each line is about a request that is made */
}
