// Calls back while the loader binds a function at its first call: from the resolver that chooses
// which one it is. The loader's trampoline keeps its stack pointer in rbx.
extern "C" {

static int (*plugin_back)(void*) = nullptr;
static void* plugin_argument = nullptr;

static int plugin_choice() {
    return 0;
}

static int (*plugin_resolve())() {
    plugin_back(plugin_argument);
    return plugin_choice;
}

__attribute__((visibility("default"), ifunc("plugin_resolve"))) int plugin_resolved();

__attribute__((visibility("default"))) int plugin_call(int (*back)(void*), void* argument) {
    plugin_back = back;
    plugin_argument = argument;
    return plugin_resolved() + 1;
}
}
