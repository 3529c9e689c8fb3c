// The set of definitions of a recording so far, to validate the references in its records.
// Identifiers are assigned in order from 1, so one count per kind suffices, and memory is bounded
// on any input.
//
// Who feeds a sink checks each record, once: the recorder, which repairs what is not valid, so that
// a defect loses the reference and not the record (a dropped definition would put all later ones
// out of order); and the reader of logs, to which it is damage.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trace/log_format.hpp"
#include "trace/record.hpp"

namespace memlab::trace {

class Definitions {
  public:
    /// Adds what the record defines. False, without a change, when it has an undefined reference or
    /// is a definition out of order.
    template <typename Record>
    bool accept(const Record& record) {
        if (!valid(record)) {
            return false;
        }
        Definer definer{{}, *this};
        Record::fields(record, definer);
        return true;
    }
    bool accept(const Event& event) { return valid(event); }
    /// As a definition of that id, the next one, does.
    void define(Definition what, std::uint32_t id) {
        if (what == Definition::device) {
            devices_.set(id);
        } else {
            counts_[static_cast<std::size_t>(what)] = id;
        }
    }

    template <typename Record>
    bool valid(const Record& record) const {
        Checker checker{{}, *this};
        Record::fields(record, checker);
        return checker.valid;
    }
    [[gnu::hot]] bool valid(const Event& event) const {
        return (is_annotation(event.type) || knows(Definition::device, event.device)) &&
               event.context <= count(Definition::context) &&
               event.api <= count(Definition::string) && event.name <= count(Definition::string) &&
               valid_stack(event.stack) && valid_nn_modules(event.nn_modules);
    }

    /// Whether an event may refer to that stack.
    bool valid_stack(std::uint32_t stack) const { return stack <= count(Definition::stack); }
    /// The same of an NnModuleStackDef.
    bool valid_nn_modules(std::uint32_t id) const {
        return id <= count(Definition::nn_module_stack);
    }

    /// Makes the record valid by dropping undefined references; false when it cannot be.
    template <typename Record>
    bool repair(Record& record) const {
        Repairer repairer{{}, *this};
        Record::fields(record, repairer);
        return valid(record);
    }
    bool repair(Event& event) const {
        clear(event.context, Definition::context);
        clear(event.api, Definition::string);
        clear(event.name, Definition::string);
        clear(event.stack, Definition::stack);
        clear(event.nn_modules, Definition::nn_module_stack);
        return valid(event);
    }

    /// True when `id` was defined.
    bool knows(Definition what, std::uint32_t id) const {
        return what == Definition::device ? id < format::max_devices && devices_.test(id)
                                          : id != 0 && id <= count(what);
    }

    /// Whether the event is the program's (mark, scope, label), and so has no device.
    static bool is_annotation(EventType type) {
        return type == EventType::mark || type == EventType::scope_begin ||
               type == EventType::scope_end || type == EventType::label;
    }

  private:
    /// The visitor that ignores all fields.
    struct Visitor {
        void time(const char*, std::uint64_t) {}
        template <typename Integer>
        void number(const char*, Integer) {}
        void text(const char*, const std::string&) {}
        void flag(const char*, bool) {}
        template <typename Enum>
        void choice(const char*, Enum, Enum) {}
        void definition(const char*, Definition, std::uint32_t) {}
        void reference(const char*, Definition, std::uint32_t) {}
        void subject(const char*, Definition, std::uint32_t) {}
        void correlation(const char*, std::uint32_t) {}
        void period(const char*, const char*, std::uint64_t, std::uint64_t) {}
        void overwritten(const char*, std::uint64_t) {}
        template <typename Items, typename Fields>
        void list(const char*, Items&, Fields) {}
    };

    struct Checker : Visitor {
        const Definitions& known;
        bool valid = true;

        void definition(const char*, Definition what, std::uint32_t id) {
            valid = valid && known.may_define(what, id);
        }
        void reference(const char*, Definition what, std::uint32_t id) {
            valid = valid && (id == 0 || known.knows(what, id));
        }
        void subject(const char*, Definition what, std::uint32_t id) {
            valid = valid && known.knows(what, id);
        }
        void period(const char*, const char*, std::uint64_t start, std::uint64_t end) {
            valid = valid && start <= end;
        }
        template <typename Item, typename Fields>
        void list(const char*, const std::vector<Item>& items, Fields fields) {
            for (const Item& item : items) {
                fields(item, *this);
            }
        }
        void frame(const Frame& frame) {
            reference("", Definition::module, frame.module);
            reference("", Definition::python_frame, frame.python);
        }
    };

    struct Repairer : Visitor {
        const Definitions& known;

        void reference(const char*, Definition what, std::uint32_t& id) { known.clear(id, what); }
        void period(const char*, const char*, std::uint64_t start, std::uint64_t& end) {
            end = end < start ? start : end;
        }
        template <typename Item, typename Fields>
        void list(const char*, std::vector<Item>& items, Fields fields) {
            for (Item& item : items) {
                fields(item, *this);
            }
        }
        void frame(Frame& frame) {
            known.clear(frame.module, Definition::module);
            known.clear(frame.python, Definition::python_frame);
        }
    };

    struct Definer : Visitor {
        Definitions& known;

        void definition(const char*, Definition what, std::uint32_t id) { known.define(what, id); }
    };

    bool may_define(Definition what, std::uint32_t id) const {
        return what == Definition::device ? id < format::max_devices
                                          : id != 0 && id == count(what) + 1;
    }
    void clear(std::uint32_t& reference, Definition what) const {
        if (!knows(what, reference)) {
            reference = 0;
        }
    }
    std::uint32_t count(Definition what) const { return counts_[static_cast<std::size_t>(what)]; }

    /// Per Definition, without devices, which are not numbered in order.
    std::array<std::uint32_t, static_cast<std::size_t>(Definition::device)> counts_{};
    std::bitset<format::max_devices> devices_;
};

}  // namespace memlab::trace
