# Draws a recorded terminal session: a window in which lines appear, and which stands still at its end. Its input has a
# line for each line of the session: microseconds, "p" (a command) or "o" (output), text. SGR colours of the text are kept.
# Variables: title, about, rows (of the window). Bytes are characters here (LC_ALL=C).

function escape(text) {
  gsub(/&/, "\\&amp;", text); gsub(/</, "\\&lt;", text); gsub(/>/, "\\&gt;", text)
  return text
}

# Appends a row of the session, which appears at `at` seconds.
function row(text) {
  lines++
  lineOf[lines] = text
  shownAt[lines] = at
}

# Appends a line in the colour of the previous text, and wraps it at the window's width.
function line(text, prompt,    out, width, run, character, code) {
  out = prompt ? "<tspan class=\"p\">$ </tspan>" : ""
  width = prompt ? 2 : 0
  run = ""
  while (text != "") {
    if (match(text, /^\033\[[0-9;]*m/)) {
      code = substr(text, 3, RLENGTH - 3)
      text = substr(text, RLENGTH + 1)
      out = out span(run); run = ""
      style = code in styles ? styles[code] : ""
      continue
    }
    # A character and the following bytes of it.
    match(text, /^[^\200-\277][\200-\277]*/)
    if (RLENGTH < 1) RLENGTH = 1
    character = substr(text, 1, RLENGTH)
    text = substr(text, RLENGTH + 1)
    if (width == COLUMNS) {
      row(out span(run))
      out = run = ""; width = 0
    }
    run = run character; width++
  }
  row(out span(run))
}

function span(text) {
  if (text == "") return ""
  return style == "" ? escape(text) : "<tspan class=\"" style "\">" escape(text) "</tspan>"
}

BEGIN {
  FS = "\t"
  COLUMNS = 112; WIDTH = 7.8; HEIGHT = 18; MARGIN = 16; BAR = 30
  # Longer pauses are cut; a command stays alone for a moment, as if it was typed.
  PAUSE = 1.2; TYPED = 0.6
  styles["1"] = "b"; styles["31"] = "r"; styles["32"] = "g"; styles["33"] = "y"; styles["34"] = "l"; styles["36"] = "c"
  styles["2"] = "d"; styles["1;31"] = "r"; styles["1;32"] = "g"; styles["1;33"] = "y"
}

{
  now = $1 / 1000000
  if (NR > 1) at += now - before > PAUSE ? PAUSE : now - before
  before = now
  text = $0
  sub(/^[^\t]*\t[^\t]*\t/, "", text)
  if ($2 == "p") at += TYPED
  style = ""
  line(text, $2 == "p")
  if ($2 == "p") at += TYPED
}

END {
  wide = int(COLUMNS * WIDTH + 2 * MARGIN)
  if (lines < rows) rows = lines
  high = BAR + rows * HEIGHT + MARGIN
  lasts = at + PAUSE
  printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" aria-labelledby=\"title about\">\n", wide, high, wide, high
  printf "<title id=\"title\">%s</title>\n<desc id=\"about\">%s</desc>\n", escape(title), escape(about)
  print "<style>"
  print "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans Mono\",monospace;fill:#d5dbe3;white-space:pre}"
  print ".p,.d{fill:#8b98a9}.b{font-weight:bold;fill:#fff}.r{fill:#ff8f88}.g{fill:#7ee08a}.y{fill:#eac55f}.l{fill:#82b6ff}.c{fill:#6fd6de}"
  # Without animations, all lines are visible and the window shows the last ones.
  print ".t{animation:t .01s backwards}@keyframes t{from{opacity:0}}"
  last = (lines - rows) * HEIGHT
  if (last > 0) {
    printf ".s{transform:translateY(-%dpx);animation:s %.2fs step-end}\n@keyframes s{0%%{transform:none}", last, lasts
    for (i = rows + 1; i <= lines; i++)
      if (i == lines || shownAt[i + 1] > shownAt[i])
        printf "%.2f%%{transform:translateY(-%dpx)}", 100 * shownAt[i] / lasts, (i - rows) * HEIGHT
    print "}"
  }
  print "@media(prefers-reduced-motion:reduce){.t,.s{animation:none}}"
  print "</style>"
  printf "<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#1c2128\" stroke=\"#57606a\"/>\n", wide, high
  for (i = 0; i < 3; i++) printf "<circle cx=\"%d\" cy=\"15\" r=\"5\" fill=\"#57606a\"/>", MARGIN + 6 + 18 * i
  printf "\n<svg y=\"%d\" width=\"%d\" height=\"%d\"><g class=\"s\">\n", BAR, wide, rows * HEIGHT + 4
  for (i = 1; i <= lines; i++)
    if (lineOf[i] != "")
      printf "<text class=\"t\" x=\"%d\" y=\"%d\" style=\"animation-delay:%.2fs\" xml:space=\"preserve\">%s</text>\n", MARGIN, i * HEIGHT - 5, shownAt[i], lineOf[i]
  print "</g></svg>\n</svg>"
}
