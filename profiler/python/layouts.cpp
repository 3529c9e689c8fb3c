#include "profiler/python/layouts.hpp"

namespace memlab::profiler::python {
const Layout* find_layout(int minor) {
    for (const Layout& layout : layouts) {
        if (layout.minor == minor) {
            return &layout;
        }
    }
    return nullptr;
}

std::string tested_versions() {
    std::string text;
    for (const Layout& layout : layouts) {
        text += (text.empty() ? "3." : ", 3.") + std::to_string(layout.minor);
    }
    return text;
}

}  // namespace memlab::profiler::python
