/** CSV by RFC 4180: quoted cells may hold commas, quotes (doubled) and line breaks. */

export interface Row {
  /** Line of the file on which the row begins, from 1. */
  line: number;
  cells: string[];
  /** A sentence when a quote does not fit; the row then ends with its first line and the next one is read anew. */
  fault: string | null;
}

interface Cell {
  text: string;
  end: number;
  fault: string | null;
}

/** Every row that is not blank. A byte order mark is dropped. */
export function readCsv(text: string): Row[] {
  const rows: Row[] = [];
  let at = text.charCodeAt(0) === 0xfeff ? 1 : 0;
  let line = 1;
  while (at < text.length) {
    const begin = at;
    let { row, end } = readRow(text, at, line);
    if (row.fault !== null) {
      end = endOfLine(text, begin);
      row = { ...row, cells: text.slice(begin, end).split(",") };
    }
    if (row.cells.length > 1 || row.cells[0].trim() !== "") rows.push(row);
    line += text.slice(begin, end).split(/\r\n|\n|\r/).length;
    at = end + (text.startsWith("\r\n", end) ? 2 : 1);
  }
  return rows;
}

function readRow(text: string, from: number, line: number): { row: Row; end: number } {
  const cells: string[] = [];
  let at = from;
  for (;;) {
    const cell = text[at] === '"' ? readQuoted(text, at) : readPlain(text, at);
    cells.push(cell.text);
    at = cell.end;
    if (cell.fault !== null || text[at] !== ",") return { row: { line, cells, fault: cell.fault }, end: at };
    at += 1;
  }
}

function readPlain(text: string, from: number): Cell {
  const end = endOfCell(text, from);
  const cell = text.slice(from, end);
  const fault = cell.includes('"') ? "a quote stands inside a cell; put the whole cell in quotes and double it" : null;
  return { text: cell, end, fault };
}

function readQuoted(text: string, from: number): Cell {
  let cell = "";
  let start = from + 1;
  for (;;) {
    const close = text.indexOf('"', start);
    if (close < 0) return { text: cell, end: text.length, fault: "a quote is opened and never closed" };
    cell += text.slice(start, close);
    start = close + 1;
    if (text[start] !== '"') break;
    cell += '"';
    start += 1;
  }
  const fault = endOfCell(text, start) === start ? null : "text follows a closing quote; double the quotes inside a text";
  return { text: cell, end: start, fault };
}

function endOfCell(text: string, from: number): number {
  let at = from;
  while (at < text.length && text[at] !== "," && text[at] !== "\n" && text[at] !== "\r") at += 1;
  return at;
}

function endOfLine(text: string, from: number): number {
  let at = from;
  while (at < text.length && text[at] !== "\n" && text[at] !== "\r") at += 1;
  return at;
}
