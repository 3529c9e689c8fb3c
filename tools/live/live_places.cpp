#include "tools/live/live_places.hpp"

#include <map>
#include <string_view>
#include <utility>

#include "model/report.hpp"
#include "tools/live/find_processes.hpp"

namespace memlab::tools {
namespace {

/// Numbers from 1 in a table whose entry 0 is "none".
template <typename Entry>
class Numbered {
  public:
    explicit Numbered(std::vector<Entry>& entries) : entries_(entries) { entries_.resize(1); }
    std::size_t of(const std::string& name, Entry entry) {
        const auto [at, is_new] = known_.try_emplace(name, entries_.size());
        if (is_new) {
            entries_.push_back(std::move(entry));
        }
        return at->second;
    }

  private:
    std::vector<Entry>& entries_;
    std::map<std::string, std::size_t> known_;
};

}  // namespace

LivePlaces::LivePlaces(pid_t process, report::Symbolizer& symbolizer)
    : root_(shares_files(process) ? "" : "/proc/" + std::to_string(process) + "/root"),
      working_directory_(working_directory_of(process)),
      symbolizer_(symbolizer) {}

std::vector<report::Place> LivePlaces::places(const model::IntervalDocument& document) {
    std::vector<report::Place> places;
    places.reserve(document.sites.size());
    for (LiveStack& stack : stacks(document)) {
        places.push_back(std::move(stack.place));
    }
    return places;
}

std::vector<LiveStack> LivePlaces::stacks(const model::IntervalDocument& document) {
    // A report of nothing but these stacks, so that the choice of a place is that of all views.
    model::Report stacks;
    stacks.stacks.resize(1);
    stacks.frames.clear();
    Numbered<model::Module> modules(stacks.modules);
    Numbered<model::PythonFrame> python(stacks.python_frames);
    for (const model::IntervalDocument::Site& site : document.sites) {
        model::Stack& stack = stacks.stacks.emplace_back();
        for (const model::IntervalDocument::Frame& frame : site.frames) {
            model::Frame& added = stacks.frames.emplace_back();
            if (!frame.address) {
                const auto line = static_cast<std::uint32_t>(frame.line);
                added.python =
                    python.of(frame.file + '\0' + frame.function + '\0' + std::to_string(line),
                              {.function = frame.function, .file = frame.file, .line = line});
            } else {
                added.address = *frame.address;
                if (!frame.module.empty()) {
                    added.module =
                        modules.of(frame.module, {.path = root_ + frame.module,
                                                  .build_id = document.build_id(frame.module)});
                }
            }
            stack.frames.push_back(stacks.frames.size() - 1);
        }
    }
    report::Resolver resolver(stacks, &symbolizer_);
    std::vector<LiveStack> named;
    named.reserve(document.sites.size());
    for (std::size_t i = 0; i < document.sites.size(); ++i) {
        LiveStack& stack =
            named.emplace_back(LiveStack{resolver.place(i + 1), resolver.frames(i + 1)});
        if (stack.place.module.starts_with(root_)) {
            stack.place.module.erase(0, root_.size());
        }
    }
    return named;
}

}  // namespace memlab::tools
