/* The module `_pointers`: the functions of ours that stand in the place of the driver's, and who is called by them.

   They hand on as many words as the driver's longest function takes. One that takes fewer looks at no more; the rest is
   whatever lies on the caller's stack. They stay where they are afterwards, and then only hand on: a library may have
   copied one meanwhile. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include "_search.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__linux__) || UINTPTR_MAX != UINT64_MAX || !(defined(__x86_64__) || defined(__aarch64__))
#error "this knows how functions are called on 64-bit Linux, on x86 and ARM alone"
#endif

typedef Word (*Function)(PARAMETERS);

enum { ANSWERING = USERS, ALL_USERS }; /* who gives functions of ours to those who ask the driver for its own */

static Function originals[MOST_FUNCTIONS]; /* never taken out again: a library may keep a function of ours */
static _Atomic int function_count;
static _Atomic unsigned char followers[MOST_FUNCTIONS]; /* a bit for each user */
static _Atomic(Called) called[ALL_USERS];
static Called known[ALL_USERS]; /* the last of each: its library keeps functions of the driver's for itself */
static unsigned char found[MOST_FUNCTIONS];
static void *named; /* the driver's library, while its names stand for functions of ours */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all that changes */

static Word
go_on_from(int user, int number, PARAMETERS)
{
    unsigned rest = atomic_load_explicit(&followers[number], memory_order_relaxed);
    for (; user < ALL_USERS; user++) {
        if (rest >> user & 1) {
            Called next = atomic_load_explicit(&called[user], memory_order_acquire);
            if (next) {
                return next(number, ARGUMENTS);
            }
        }
    }
    return originals[number](ARGUMENTS);
}

static Word
go_on(User user, int number, PARAMETERS)
{
    return go_on_from((int)user + 1, number, ARGUMENTS);
}

/* A function of ours for each of the driver's: of itself it knows only its number. */
#define EACH_TEN(use, tens) \
    use(tens##0) use(tens##1) use(tens##2) use(tens##3) use(tens##4) use(tens##5) use(tens##6) use(tens##7) use(tens##8) \
    use(tens##9)
#define EACH_HUNDRED(use, hundreds) \
    EACH_TEN(use, hundreds##0) EACH_TEN(use, hundreds##1) EACH_TEN(use, hundreds##2) EACH_TEN(use, hundreds##3) \
    EACH_TEN(use, hundreds##4) EACH_TEN(use, hundreds##5) EACH_TEN(use, hundreds##6) EACH_TEN(use, hundreds##7) \
    EACH_TEN(use, hundreds##8) EACH_TEN(use, hundreds##9)
#define EACH(use) \
    use(0) use(1) use(2) use(3) use(4) use(5) use(6) use(7) use(8) use(9) \
    EACH_TEN(use, 1) EACH_TEN(use, 2) EACH_TEN(use, 3) EACH_TEN(use, 4) EACH_TEN(use, 5) \
    EACH_TEN(use, 6) EACH_TEN(use, 7) EACH_TEN(use, 8) EACH_TEN(use, 9) \
    EACH_HUNDRED(use, 1) EACH_HUNDRED(use, 2) EACH_HUNDRED(use, 3) EACH_HUNDRED(use, 4) EACH_HUNDRED(use, 5)
#define DEFINE(number) \
    static Word ours_##number(PARAMETERS) { return go_on_from(0, number, ARGUMENTS); }
#define NAME(number) ours_##number,
EACH(DEFINE)
static const Function ours[] = {EACH(NAME)};

_Static_assert(sizeof ours / sizeof *ours == MOST_FUNCTIONS, "one of ours for each");

static Word
value_of(Function function)
{
    return (Word)(uintptr_t)function;
}

/* The number of the function at this address, or of ours in its place; -1 if there is none. */
static int
number_of(Word address)
{
    int count = function_count;
    for (int number = 0; number < count; number++) {
        if (value_of(originals[number]) == address || value_of(ours[number]) == address) {
            return number;
        }
    }
    return -1;
}

static void *
original(void *address)
{
    int number = number_of((Word)(uintptr_t)address);
    if (number >= 0) {
        memcpy(&address, &originals[number], sizeof address);
    }
    return address;
}

/* cuGetProcAddress answers by a name without suffix, for a version of CUDA and a kind of default stream. */
typedef int (*GetProcAddress)(const char *name, void **address, int version, uint64_t flags, void *status);
enum { LEGACY_DEFAULT = 1, PER_THREAD_DEFAULT = 2, PER_THREAD_SINCE = 7000 };

static int
add_address(int user, void *address, int per_thread, Told told, const void *argument)
{
    int number = address ? number_of((Word)(uintptr_t)address) : -1;
    if (address && number < 0 && function_count < MOST_FUNCTIONS) {
        number = function_count;
        memcpy(&originals[number], &address, sizeof address);
        function_count++;
    }
    if (number < 0) {
        return 0;
    }
    followers[number] |= (unsigned char)(1 << user);
    if (told) {
        told(number, per_thread, argument);
    }
    return 1;
}

static int
add_locked(int user, void *driver, const NamedFunction *function, Told told, const void *argument)
{
    static const struct {
        const char *suffix;
        int per_thread;
    } forms[] = {{"", 0}, {"_ptsz", 1}, {"_ptds", 1}};
    GetProcAddress get;
    void *found = dlsym(driver, "cuGetProcAddress_v2");
    memcpy(&get, &found, sizeof get);
    int added = 0;
    char name[96];
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        snprintf(name, sizeof name, "%s%s", function->name, forms[i].suffix);
        added |= add_address(user, dlsym(driver, name), forms[i].per_thread, told, argument);
    }
    snprintf(name, sizeof name, "%.*s", (int)strcspn(function->name, "_"), function->name);
    for (int per_thread = 0; get && per_thread < 2; per_thread++) {
        void *address = NULL;
        int since = per_thread && function->since < PER_THREAD_SINCE ? PER_THREAD_SINCE : function->since;
        if (!get(name, &address, since, per_thread ? PER_THREAD_DEFAULT : LEGACY_DEFAULT, NULL)) {
            added |= add_address(user, address, per_thread, told, argument);
        }
    }
    return added;
}

static int
add(User user, void *driver, const NamedFunction *function, Told told, const void *argument)
{
    pthread_mutex_lock(&lock);
    int added = add_locked((int)user, driver, function, told, argument);
    pthread_mutex_unlock(&lock);
    return added;
}

static int
by_value(const void *one, const void *other)
{
    Word first = ((const Exchange *)one)->from, second = ((const Exchange *)other)->from;
    return (first > second) - (first < second);
}

/* Replaces the driver's functions by ours, or ours by the driver's: in data, and in names if the library is given. */
static int
exchange(int back, int data, void *library)
{
    static Exchange rows[MOST_FUNCTIONS];
    const void *skipped[ALL_USERS + 3] = {originals};
    int count = function_count, skipped_count = 1;
    for (int number = 0; number < count; number++) {
        Word theirs = value_of(originals[number]), mine = value_of(ours[number]);
        rows[number] = back ? (Exchange){mine, theirs, number} : (Exchange){theirs, mine, number};
    }
    qsort(rows, (size_t)count, sizeof *rows, by_value);
    for (int user = 0; user < ALL_USERS; user++) {
        if (known[user]) {
            skipped[skipped_count++] = (const void *)(uintptr_t)known[user];
        }
    }
    if (!back && count) { /* the driver's own data */
        skipped[skipped_count++] = (const void *)(uintptr_t)rows[0].from;
        skipped[skipped_count++] = (const void *)(uintptr_t)rows[count - 1].from;
    }
    Wanted wanted = {rows, count, skipped, skipped_count, found};
    int error = library ? search_names(&wanted, library) : 0;
    int failed = data ? search_data(&wanted) : 0;
    return error ? error : failed;
}

/* cuGetProcAddress: its second argument is where the address goes. */
static Word
answer(int number, PARAMETERS)
{
    Word result = go_on_from(ANSWERING + 1, number, ARGUMENTS);
    Word *address = (Word *)b;
    int asked = !(int)result && address ? number_of(*address) : -1;
    if (asked >= 0) {
        *address = value_of(ours[asked]);
        found[asked] = 1;
    }
    return result;
}

/* Calls `called[user]` no more. If nobody is left who follows, all is put back. */
static void
leave_locked(User user)
{
    int was_there = called[user] != NULL, others = 0;
    called[user] = NULL;
    for (int other = 0; other < USERS; other++) {
        others += called[other] != NULL;
    }
    if (was_there && !others) {
        called[ANSWERING] = NULL;
        exchange(1, 1, named);
        named = NULL;
        memset(found, 0, sizeof found);
    }
}

static void
leave(User user)
{
    pthread_mutex_lock(&lock);
    leave_locked(user);
    pthread_mutex_unlock(&lock);
}

static const char *
follow(User user, Called function, void *driver)
{
    static const NamedFunction answering[] = {{"cuGetProcAddress", 11030}, {"cuGetProcAddress_v2", 12000}};
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof answering / sizeof *answering; i++) {
        add_locked(ANSWERING, driver, &answering[i], NULL, NULL);
    }
    called[ANSWERING] = answer;
    called[user] = known[user] = function;
    named = driver;
    /* Names first: who asks for a function between the two is given ours, or is found. */
    const char *why = NULL;
    int error = exchange(0, 0, driver);
    if (error) { /* the library's table of symbols must not be written */
        named = NULL;
        why = user == BLAMING ? strerror(error) : NULL;
    }
    if (!why && exchange(0, 1, NULL)) {
        why = "the process's memory cannot be looked at";
    }
    if (why) {
        leave_locked(user);
    }
    pthread_mutex_unlock(&lock);
    return why;
}

static int
is_found(int number)
{
    return found[number];
}

static void
forked(void)
{
    pthread_mutex_init(&lock, NULL);
}

static const Pointers table = {add, original, follow, go_on, is_found, leave};

static int
fill(PyObject *module)
{
    if (pthread_atfork(NULL, NULL, forked)) {
        PyErr_SetString(PyExc_OSError, "the process's forks cannot be watched");
        return -1;
    }
    PyObject *capsule = PyCapsule_New((void *)(uintptr_t)&table, POINTERS_CAPSULE, NULL);
    int failed = !capsule || PyObject_SetAttrString(module, "API", capsule);
    Py_XDECREF(capsule);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};

static PyModuleDef module = {PyModuleDef_HEAD_INIT, .m_name = "_pointers", .m_slots = slots};

PyMODINIT_FUNC
PyInit__pointers(void)
{
    return PyModuleDef_Init(&module);
}
