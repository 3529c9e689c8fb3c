// A library that calls back, with a small frame; plugin_other.cpp is built to the same size with a
// large one, so that the loader puts one where the other was.
extern "C" __attribute__((visibility("default"), noipa)) int plugin_call(int (*back)(void*),
                                                                         void* argument) {
    volatile char space[40];
    space[0] = 1;
    return back(argument) + space[0];
}
