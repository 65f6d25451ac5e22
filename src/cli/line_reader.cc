#include "cli/line_reader.h"

#include <histedit.h>
#include <langinfo.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cli/interrupt.h"
#include "cli/terminal.h"

namespace firstlight {
namespace {

class PlainReader final : public LineReader {
 public:
  Outcome read(std::string& line) override {
    line.clear();
    InterruptScope::reset();
    while (true) {
      const int c = std::getc(stdin);
      if (c == EOF) {
        if (InterruptScope::requested()) {
          std::clearerr(stdin);
          return Outcome::kInterrupted;
        }
        return line.empty() ? Outcome::kEnd : Outcome::kLine;  // a last line may lack its newline
      }
      if (c == '\n') return Outcome::kLine;
      line.push_back(static_cast<char>(c));
    }
  }
};

class EditingReader final : public LineReader {
 public:
  explicit EditingReader(std::string prompt) : prompt_(std::move(prompt)) {
    // libedit decodes what is typed by the locale; a terminal in the C locale speaks UTF-8 all the same.
    std::setlocale(LC_CTYPE, "");
    if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) std::setlocale(LC_CTYPE, "C.UTF-8");
    edit_ = el_init("firstlight", stdin, stdout, stderr);
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, 1000);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT, &EditingReader::prompt);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_HIST, ::history, history_);
    // Ctrl-C arrives as a key, so that no signal handler has to restore the terminal.
    el_set(edit_, EL_SETTY, "-d", "-isig", nullptr);
    el_set(edit_, EL_ADDFN, "firstlight-interrupt", "Gives up the line", &EditingReader::interrupt);
    el_set(edit_, EL_BIND, "^C", "firstlight-interrupt", nullptr);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(edit_, nullptr);  // the user's ~/.editrc
  }
  ~EditingReader() override {
    history_end(history_);
    el_end(edit_);
  }

  Outcome read(std::string& line) override {
    interrupted_ = false;
    el_set(edit_, EL_PREP_TERM, 1);  // before the prompt invites to type, not after
    int count = 0;
    const char* text = el_gets(edit_, &count);
    if (interrupted_) {
      el_reset(edit_);
      std::fputs("^C\n", stdout);
      std::fflush(stdout);
      return Outcome::kInterrupted;
    }
    if (text == nullptr || count <= 0) {
      std::fputs("\n", stdout);
      return Outcome::kEnd;
    }
    line.assign(text, static_cast<std::size_t>(count));
    if (line.ends_with('\n')) line.pop_back();
    if (!line.empty()) {
      HistEvent event;
      history(history_, &event, H_ENTER, line.c_str());
    }
    return Outcome::kLine;
  }

 private:
  static EditingReader* self(EditLine* edit) {
    void* data = nullptr;
    el_get(edit, EL_CLIENTDATA, &data);
    return static_cast<EditingReader*>(data);
  }
  static const char* prompt(EditLine* edit) { return self(edit)->prompt_.c_str(); }
  static unsigned char interrupt(EditLine* edit, int) {
    self(edit)->interrupted_ = true;
    return CC_EOF;
  }

  std::string prompt_;
  EditLine* edit_ = nullptr;
  ::History* history_ = nullptr;
  bool interrupted_ = false;
};

}  // namespace

std::unique_ptr<LineReader> LineReader::open(const std::string& prompt) {
  if (is_terminal(stdin) && is_terminal(stdout)) return std::make_unique<EditingReader>(prompt);
  return std::make_unique<PlainReader>();
}

}  // namespace firstlight
