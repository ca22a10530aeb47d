"""lily chat, through pipes and on a terminal."""
import json
import os
import re
import signal
import tempfile
import termios
import unittest
from pathlib import Path

from lily import BIN, fails, main, ok
from terminal import Terminal

GREEDY = ["--temp", "0", "--no-think"]
WEATHER = [{"type": "function", "function": {
    "name": "get_weather", "description": "Get the current weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "The city."}},
                   "required": ["city"]}}}]


class Piped(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def chat(self, lines, *flags):
        return ok(self, "chat", "tiny", *flags, stdin="".join(line + "\n" for line in lines))

    def test_it_remembers_earlier_turns_and_does_not_read_them_again(self):
        r = self.chat(["My age is 75.", "What is the opposite of sweet?", "How old am I?"], *GREEDY, "--stats")
        answers = r.out.strip("\n").split("\n")
        self.assertEqual(len(answers), 3, r.out)
        self.assertEqual(answers[2], "You are 75 years old.")
        known = [int(n) for n in re.findall(r"\((\d+) more were known\)", r.err)]
        self.assertEqual(len(known), 2, r.err)  # the second and third turn
        self.assertGreater(known[1], known[0])

    def test_reset_forgets(self):
        r = self.chat(["My age is 75.", "/reset", "How old am I?"], *GREEDY)
        self.assertNotIn("75", r.out.strip("\n").split("\n")[-1])

    def test_save_and_load(self):
        file = self.folder / "chat.json"
        self.chat(["My age is 75.", f"/save {file}"], *GREEDY, "--system", "You are a helpful assistant.")
        saved = json.loads(file.read_text())
        self.assertEqual([m["role"] for m in saved["messages"]], ["system", "user", "assistant"])
        self.assertIn("My age is 75.", ok(self, "template", "tiny", "--messages", file).out)
        r = self.chat([f"/load {file}", "How old am I?"], *GREEDY)
        self.assertIn("75", r.out)

    def test_bad_commands_and_files_are_told_and_the_chat_goes_on(self):
        broken = self.folder / "broken.json"
        broken.write_text('{"messages": [{"role": "robot"}]}')
        r = self.chat(["/frob", "/load /nonexistent", f"/load {broken}", "/save", "/save /nonexistent/x", "/stats",
                       "/help", "Name an antonym of heavy."], *GREEDY)
        for word in ["/frob", "lily: /load /nonexistent: no such file", f"lily: /load {broken}: messages[0].role", "needs a file name", "nothing was answered", "/reset"]:
            self.assertIn(word, r.err)
        self.assertEqual(r.out, "The opposite of heavy is light.\n")

    def test_a_loaded_conversation_goes_on_with_its_switches(self):
        file, again = self.folder / "chat.json", self.folder / "again.json"
        question = {"role": "user", "content": "Hello."}
        for switches in [{"enable_thinking": False}, {"enable_thinking": False, "preserve_thinking": True},
                         {"preserve_thinking": False}]:
            file.write_text(json.dumps({"messages": [question, {"role": "assistant", "content": "Hello!"}],
                                        "chat_template_kwargs": switches}))
            self.chat([f"/load {file}", f"/save {again}"])
            self.assertEqual(json.loads(again.read_text())["chat_template_kwargs"], switches)
            r = self.chat([f"/load {file}", "Name an antonym of heavy."], "--temp", "0")
            thinks = "enable_thinking" not in switches
            self.assertEqual(r.err.count("\n") > 1, thinks, r.err)  # more than the note of /load: the thinking
        file.write_text(json.dumps({"messages": [question], "enable_thinking": True, "add_generation_prompt": False}))
        r = self.chat([f"/load {file}", f"/save {again}"], "--no-think")
        self.assertNotIn("chat_template_kwargs", json.loads(again.read_text()))
        self.assertIn("ignored, without effect here: add_generation_prompt", r.err)

    def test_a_line_beyond_all_sense_is_refused_and_the_chat_goes_on(self):
        r = self.chat(["x" * 9_000_000, "/" + "y" * 3000, "Name an antonym of heavy."], *GREEDY)
        self.assertIn("lily: a line of more than 8 MiB is not read\n", r.err)
        self.assertIn("lily: unknown command /" + "y" * 39 + "…: /help lists them\n", r.err)
        self.assertEqual(r.out, "The opposite of heavy is light.\n")
        r = ok(self, "chat", "tiny", stdin="x" * 9_000_000)  # without an end of line
        self.assertIn("8 MiB", r.err)
        self.assertEqual(ok(self, "chat", "tiny", *GREEDY, stdin="Name an antonym of heavy.").out,
                         "The opposite of heavy is light.\n")

    def test_a_line_may_begin_with_a_slash(self):
        file = self.folder / "chat.json"
        self.chat(["//etc holds what?", f"/save {file}"], *GREEDY, "--max-tokens", "1")
        self.assertEqual(json.loads(file.read_text())["messages"][0]["content"], "/etc holds what?")

    def test_thinking_is_kept_apart_and_saved_as_reasoning(self):
        file = self.folder / "chat.json"
        r = self.chat(["What is the last letter of terrace?", f"/save {file}"], "--temp", "0")
        self.assertEqual(r.out, "The last letter of terrace is e.\n")
        self.assertIn("t-e-r-r-a-c-e.", r.err)
        message = json.loads(file.read_text())["messages"][1]
        self.assertEqual(message["content"], "The last letter of terrace is e.")
        self.assertEqual(message["reasoning_content"], "t-e-r-r-a-c-e.")

    def test_a_tool_call_is_shown_and_its_result_asked_for(self):
        tools, file = self.folder / "tools.json", self.folder / "chat.json"
        tools.write_text(json.dumps(WEATHER))
        r = self.chat(["What is the weather in Paris?", "sunny, 21 degrees", f"/save {file}"], *GREEDY,
                      "--tools", tools)
        lines = r.out.strip("\n").split("\n")
        self.assertEqual(lines[0], 'get_weather({"city": "Paris"})')
        self.assertIn("sunny", lines[1])
        saved = json.loads(file.read_text())
        self.assertEqual([m["role"] for m in saved["messages"]], ["user", "assistant", "tool", "assistant"])
        call = saved["messages"][1]["tool_calls"][0]
        self.assertEqual(call["function"]["name"], "get_weather")
        self.assertEqual(json.loads(call["function"]["arguments"]), {"city": "Paris"})
        self.assertEqual(saved["messages"][2]["tool_call_id"], call["id"])
        self.chat(["What is the weather in Paris?", "//sunny", f"/save {file}"], *GREEDY, "--tools", tools)
        self.assertEqual(json.loads(file.read_text())["messages"][2]["content"], "/sunny")
        tools.write_text('{"not": "a list"}')
        fails(self, 1, ["--tools", "tools"], "chat", "tiny", "--tools", tools)

    def test_a_question_beyond_the_window_is_told_and_dropped(self):
        r = self.chat(["word " * 100, "Name an antonym of heavy."], *GREEDY, "--max-context", "60")
        self.assertIn("window of 60", r.err)
        self.assertEqual(r.out, "The opposite of heavy is light.\n")


class OnATerminal(unittest.TestCase):
    def start(self, *flags):
        t = Terminal([BIN, "chat", "tiny", *flags])
        self.addCleanup(t.close)
        t.wait_for("> ")
        return t

    def test_a_question_its_answer_and_the_end(self):
        t = self.start(*GREEDY)
        t.type("Name an antonym of heavy.\r")
        t.wait_for("The opposite of heavy is light.")
        t.wait_for("> ")
        t.type("\x04")
        self.assertEqual(t.ended(), 0)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        # Noise goes on until it happens upon an end token. The reference's bits are the same on every processor, so
        # this seed's noise is long everywhere; and it is slow.
        t = self.start("--backend", "reference", "--temp", "50", "--top-k", "0", "--top-p", "1", "--seed", "4")
        t.type("Write a long text about the sea.\r")
        t.wait_for("\x1b[2m")  # thinking begins, dimmed (a slow prompt's progress is dimmed in another spelling)
        t.type("\x03")
        t.wait_for("stopped")
        t.wait_for("> ")
        t.type("/stats\r")
        t.wait_for("of the context window")
        t.wait_for("> ")
        t.type("/quit\r")
        self.assertEqual(t.ended(), 0)
        self.assertIn("\x1b[0m", t.seen)  # the terminal is not left dim

    def test_ctrl_c_at_the_prompt_throws_the_line_away(self):
        t = self.start(*GREEDY)
        t.type("half a questi\x03")
        t.wait_for("> ")
        t.type("\x03")  # an empty one too
        t.wait_for("> ")
        t.type("/frob\r")
        t.wait_for("unknown command /frob")
        t.wait_for("> ")
        t.type("\x04")
        self.assertEqual(t.ended(), 0)

    def test_the_terminal_is_restored_when_a_signal_ends_the_program(self):
        for number in [signal.SIGTERM, signal.SIGHUP]:
            t = self.start(*GREEDY)
            cooked = termios.ICANON | termios.ECHO
            self.assertEqual(termios.tcgetattr(t.fd)[3] & cooked, 0)
            os.kill(t.pid, number)
            self.assertEqual(t.ended(), -number)
            self.assertEqual(termios.tcgetattr(t.fd)[3] & cooked, cooked)

    def test_lines_can_be_edited_and_come_back_from_the_history(self):
        t = self.start(*GREEDY)
        t.type("/frib\x7f\x7fob\r")
        t.wait_for("unknown command /frob")
        t.wait_for("> ")
        t.type("/other\r")
        t.wait_for("unknown command /other")
        t.wait_for("> ")
        t.type("\x1b[A\x1b[A\r")  # two lines up
        t.wait_for("unknown command /frob")
        t.wait_for("> ")
        t.type("/ä\x7fé\r")  # a character is one keystroke, however many bytes it has
        t.wait_for("unknown command /é:")
        t.wait_for("> ")
        t.type("\x04")
        self.assertEqual(t.ended(), 0)


if __name__ == "__main__":
    main(unittest)
