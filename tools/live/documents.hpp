// The documents that a running process answers with, read. What it says is checked as a report is,
// and texts that go to a terminal must pass report::printable().
#pragma once

#include <optional>
#include <string>

#include "model/interval_document.hpp"
#include "model/live/live_documents.hpp"
#include "tools/live/client.hpp"

namespace memlab::tools {

/// None: it is not such a document; *problem says why, one line.
std::optional<model::StatusDocument> read_status(const std::string& json, std::string* problem);
std::optional<model::IntervalDocument> read_interval(const std::string& json, std::string* problem);
std::optional<model::ActionDocument> read_action(const std::string& json, std::string* problem);
std::optional<model::PoolDocument> read_pool(const std::string& json, std::string* problem);

/// A process's state, or why it is not known.
struct LiveStatus {
    pid_t process = 0;
    std::optional<model::StatusDocument> status;
    std::string problem;
    std::string document;  ///< as it came
};

LiveStatus ask_status(LiveConnection& connection);

}  // namespace memlab::tools
