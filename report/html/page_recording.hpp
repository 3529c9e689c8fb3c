// A recording as the page has it: its report, its history, and the documents of the views.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/report.hpp"
#include "report/html/history.hpp"
#include "report/lacks.hpp"
#include "report/symbols/frame_skips.hpp"
#include "report/symbols/resolver.hpp"
#include "report/symbols/symbolizer.hpp"
#include "report/views/suppressions.hpp"
#include "report/whatif/trials.hpp"

namespace memlab::report {

struct PageOptions {
    bool sources = true;  ///< source lines, and the arguments of programs
    std::vector<std::string> source_folders;
    FrameSkips skips;
    const std::vector<Suppression>* suppressions = nullptr;  ///< for leaks; must not be null
    HistoryLimits limits;
    whatif::PoolSettingsOf pool_settings = {};  ///< for replays; empty: none
};

/// A recording in full. All members refer to its report.
struct PageRecording {
    std::string file;
    std::unique_ptr<const model::Report> report;
    std::unique_ptr<Resolver> resolver;
    bool from_log = false;
    std::vector<Lack> lacks;
    std::vector<std::string> notes;  ///< whole sentences: the summary's warnings
    SiteCategories categories;       ///< by Report::sites
    std::vector<bool> suppressed;    ///< the same: what it left is not a leak
    History history;
    /// The value of a view's --json by its name ("leaks"), as the view writes it.
    std::vector<std::pair<std::string, std::string>> documents;
};

/// Reads the event log of a recording, if there is one, for its history and for what the views need
/// of it. `symbolizer`: null: no names are looked up. `run_lacks`: what the run lacks that it is
/// alone in. May throw std::bad_alloc.
PageRecording read_recording(const std::string& file, model::Report report, Symbolizer* symbolizer,
                             const PageOptions& options, const std::vector<Lack>& run_lacks = {});

/// What its history leaves out, in whole sentences.
std::vector<std::string> history_notes(const PageRecording& recording);

/// The name of the program stands for its arguments.
void leave_out_arguments(model::Process& process);

}  // namespace memlab::report
