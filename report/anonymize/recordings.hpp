// Event logs and JSON documents of memlab without what tells where they were made (anonymizer.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "model/report_file.hpp"
#include "report/anonymize/anonymizer.hpp"

namespace memlab::report {

struct AnonymizedLog {
    std::string error;    ///< "what; what to do"; then nothing is written
    std::string warning;  ///< of a log that is damaged: what, and where
    std::uint64_t records = 0;
};

/// Writes the log to `output`: all its records, in order, at their times. Of one that kept its
/// beginning and its newest part (MEMLAB_LOG_LIMIT) both, and a checkpoint of what is between them.
/// What is there is replaced when the copy is complete and `before()` returns no error, and is
/// unchanged otherwise. Throws std::bad_alloc.
AnonymizedLog anonymize_log(const std::string& log, const std::string& output,
                            model::Existing existing, Anonymizer& anonymizer,
                            const std::function<std::string()>& before);

/// `text`: a report, or the file of memlab-run; `error`: "what; what to do". Throws std::bad_alloc.
std::string anonymize_json(std::string_view text, Anonymizer& anonymizer, std::string& error);

}  // namespace memlab::report
