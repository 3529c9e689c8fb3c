#include "report/names.hpp"

namespace memlab::report {

std::string without_anonymous(std::string name) {
    static constexpr std::string_view anonymous = "(anonymous namespace)::";
    for (std::size_t at = name.find(anonymous); at != std::string::npos;
         at = name.find(anonymous, at)) {
        name.erase(at, anonymous.size());
    }
    return name;
}

std::string collapse_templates(const std::string& name, bool ascii) {
    std::string result;
    int depth = 0;
    for (std::size_t i = 0; i < name.size(); ++i) {
        const bool after_operator = i >= 8 && name.compare(i - 8, 8, "operator") == 0;
        if (name[i] == '<' && !after_operator) {
            if (depth++ == 0) {
                result += ascii ? "<...>" : "<…>";
            }
        } else if (name[i] == '>' && depth > 0) {
            --depth;
        } else if (depth == 0) {
            result += name[i];
        }
    }
    return depth == 0 ? result : name;
}

}  // namespace memlab::report
