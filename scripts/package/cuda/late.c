/* CUDA's libraries, loaded when a GPU is first asked for, so that a program runs without them, and
 * without a driver.
 *
 * A program is linked with this in place of the libraries. `late.py` writes `late.inc`: a function
 * for each name that Candle may call, which jumps to where its pointer in `taper_late_to` points:
 * first to a function that returns an error. The driver is looked for where the system has it, the
 * other libraries in NVIDIA's packages for Python beside the package that this is in, and then where
 * the system has them.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Errors of the driver: no GPU can be used, since there is no driver; a library does not load. */
enum { NO_DRIVER = 34, NO_LIBRARY = 303 };

/* What a function returns that its library lacks, or before it is loaded: each library has its own
 * number for "not found" or "not initialized". */
static int absent_driver(void) { return 500; }
static int absent_cublas(void) { return 1; }
static int absent_curand(void) { return 101; }

/* One of the libraries: its file, what brings it, and its first function in the list of all. */
struct Library { const char *file, *from; int first; };

#if defined __x86_64__
#define JUMP(at) "jmp *taper_late_to+8*" #at "(%rip)\n"
#elif defined __aarch64__
#define JUMP(at) \
    "adrp x16, taper_late_to+8*" #at "\nldr x16, [x16, :lo12:taper_late_to+8*" #at "]\nbr x16\n"
#else
#error "functions of CUDA's libraries are loaded late on x86-64 and ARM alone"
#endif
#define FUNCTION(name, at) \
    __asm__(".text\n.balign 16\n.globl " #name "\n.hidden " #name "\n.type " #name \
            ", %function\n" #name ":\n" JUMP(at) ".size " #name ", .-" #name "\n");

/* LIBRARIES (those of `struct Library`), COUNT, NAMES, and ABSENT (where each points to first); then
 * a FUNCTION for each name. */
#include "late.inc"

__attribute__((visibility("hidden"))) void *taper_late_to[COUNT] = {ABSENT};
static const char *const names[COUNT] = {NAMES};
static const struct Library libraries[] = {LIBRARIES};
enum { LIBRARY_COUNT = sizeof libraries / sizeof *libraries };

/* What is missing, if anything is. */
static char missing[512];
static int status;

/* The file's path in NVIDIA's packages for Python; false if it would be too long. */
static int in_packages(const char *file, char *path, size_t room) {
    Dl_info here;
    const char *end;
    if (!dladdr(libraries, &here) || !(end = strrchr(here.dli_fname, '/'))) return 0;
    int length = snprintf(path, room, "%.*s/../nvidia/cu13/lib/%s", (int)(end - here.dli_fname),
                          here.dli_fname, file);
    return length > 0 && (size_t)length < room;
}

static int load(int which) {
    const struct Library *library = &libraries[which];
    char path[4096];
    void *loaded = NULL;
    /* The driver, which is the first, is of the system alone. */
    if (which && in_packages(library->file, path, sizeof path)) loaded = dlopen(path, RTLD_LAZY);
    if (!loaded) loaded = dlopen(library->file, RTLD_LAZY);
    if (!loaded) {
        snprintf(missing, sizeof missing, "%s does not load (%s): %s", library->file, dlerror(),
                 library->from);
        return which ? NO_LIBRARY : NO_DRIVER;
    }
    int end = which + 1 < LIBRARY_COUNT ? library[1].first : COUNT;
    for (int at = library->first; at < end; at++) {
        void *function = dlsym(loaded, names[at]);
        if (function) taper_late_to[at] = function;
    }
    return 0;
}

/* A function of the driver; NULL if it is not loaded. */
static void *driver(const char *name) {
    for (int at = 0; at < COUNT; at++)
        if (!strcmp(names[at], name))
            return taper_late_to[at] == (void *)absent_driver ? NULL : taper_late_to[at];
    return NULL;
}

static void load_driver(void) { status = load(0); }
static void load_others(void) {
    for (int which = 1; which < LIBRARY_COUNT && !status; which++) status = load(which);
}

/* The first function that is called: no other library is needed where there is no GPU. */
__attribute__((visibility("hidden"))) int cuInit(unsigned flags) {
    static pthread_once_t once = PTHREAD_ONCE_INIT, others = PTHREAD_ONCE_INIT;
    pthread_once(&once, load_driver);
    int (*init)(unsigned) = driver("cuInit");
    if (!init) return status ? status : NO_DRIVER;
    int result = init(flags);
    if (result) return result;
    pthread_once(&others, load_others);
    return status;
}

static int described(const char *function, int error, const char **text, const char *own) {
    int (*describe)(int, const char **) = driver(function);
    if (describe && !(error == status && *missing)) return describe(error, text);
    *text = own;
    return 0;
}
__attribute__((visibility("hidden"))) int cuGetErrorString(int error, const char **text) {
    return described("cuGetErrorString", error, text,
                     *missing ? missing : "no GPU has been asked for");
}
__attribute__((visibility("hidden"))) int cuGetErrorName(int error, const char **text) {
    return described("cuGetErrorName", error, text,
                     error == NO_LIBRARY ? "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED"
                                         : "CUDA_ERROR_STUB_LIBRARY");
}
