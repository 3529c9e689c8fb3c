// A library that calls back, with a large frame; see plugin_one.cpp.
extern "C" __attribute__((visibility("default"), noipa)) int plugin_call(int (*back)(void*),
                                                                         void* argument) {
    volatile char space[4000];
    space[0] = 1;
    return back(argument) + space[0];
}
