#include "tools/report/run_members.hpp"

#include <cstdlib>
#include <string>

#include "tools/report/subcommand.hpp"

namespace memlab::tools {

int report_errors(const report::RunCollection& collection) {
    for (const auto& [file, error] : collection.errors) {
        std::string problem = file;
        problem.append(": ").append(error);
        fail(problem);
    }
    return collection.errors.empty() ? EXIT_SUCCESS : exit_bad_input;
}

}  // namespace memlab::tools
