// Prints the kinds of records and their fields as Markdown: the table in docs/event-log.md is this
// text, and a test compares.
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "trace/event_codec.hpp"
#include "trace/record.hpp"

namespace {

using memlab::trace::Definition;
using memlab::trace::Frame;

const char* name_of(Definition what) {
    switch (what) {
        case Definition::string:
            return "string";
        case Definition::module:
            return "module";
        case Definition::python_frame:
            return "Python frame";
        case Definition::stack:
            return "stack";
        case Definition::context:
            return "context";
        case Definition::nn_module_stack:
            return "stack of nn.Modules";
        case Definition::device:
            return "device";
    }
    return "";
}

/// A visitor of fields() that writes down what they are.
class Describer {
  public:
    void time(const char* name, std::uint64_t /*value*/) { add(name); }
    template <typename Integer>
    void number(const char* name, Integer /*value*/) {
        add(name);
    }
    void text(const char* name, const std::string& /*value*/) { add(name, "text"); }
    void flag(const char* name, bool /*value*/) { add(name, "0 or 1"); }
    template <typename Enum>
    void choice(const char* name, Enum /*value*/, Enum last) {
        add(name, "byte, up to " + std::to_string(static_cast<unsigned>(last)));
    }
    void definition(const char* name, Definition /*what*/, std::uint32_t /*id*/) {
        add(name, "defined here");
    }
    void reference(const char* name, Definition what, std::uint32_t /*id*/) {
        add(name, name_of(what) == std::string(name) ? "" : name_of(what));
    }
    void subject(const char* name, Definition what, std::uint32_t id) { reference(name, what, id); }
    void correlation(const char* name, std::uint32_t /*value*/) { add(name, "difference"); }
    void period(const char* start, const char* duration, std::uint64_t /*start*/,
                std::uint64_t /*end*/) {
        add(start, "difference");
        add(duration);
    }
    void overwritten(const char* name, std::uint64_t /*value*/) {
        add(name, "8 bytes, little-endian");
    }
    template <typename Item, typename Fields>
    void list(const char* name, const std::vector<Item>& /*items*/, Fields fields) {
        Describer each;
        const Item item{};
        fields(item, each);
        add(std::string("count of ") + name, "each: " + each.fields_);
    }
    void frame(const Frame& /*frame*/) {
        add("either 2 · module and the address, or 2 · Python frame + 1, leaf first");
    }

    const std::string& fields() const { return fields_; }

  private:
    void add(const std::string& name, const std::string& what = "") {
        fields_ += fields_.empty() ? "" : ", ";
        fields_ += what.empty() ? name : name + " (" + what + ")";
    }

    std::string fields_;
};

template <typename Record>
void print(int tag, const char* name) {
    Describer describer;
    const Record record;
    Record::fields(record, describer);
    std::printf("| %d | %s | length; %s |\n", tag, name, describer.fields().c_str());
}

}  // namespace

int main() {
    std::puts("| tag | record | fields |");
    std::puts("|---|---|---|");
#define MEMLAB_PRINT(Record, name, tag) print<memlab::trace::Record>(tag, #name);
    MEMLAB_RECORD_KINDS(MEMLAB_PRINT)
#undef MEMLAB_PRINT
    std::printf("| 0x%x + type | event | below |\n",
                static_cast<unsigned>(memlab::trace::format::event_tag));
    std::printf(
        "| 0x%x | freed | as an event of type free_requested: two events, that one and its "
        "free_completed, which is of the same time and says the same except API, stack, "
        "correlation and stack of nn.Modules: those are 0. The free_completed does not count as "
        "the last of its type |\n",
        static_cast<unsigned>(memlab::trace::format::freed_tag));
    std::printf(
        "| 0x%x, 0x%x | short alloc, short freed | below: an event of type alloc, "
        "the two events of freed |\n",
        static_cast<unsigned>(memlab::trace::format::short_alloc_tag),
        static_cast<unsigned>(memlab::trace::format::short_freed_tag));
    std::printf("| 0x%x | short alloc of an nn.Module's | below: an event of type alloc |\n",
                static_cast<unsigned>(memlab::trace::format::short_nn_alloc_tag));
    return 0;
}
