// Tables of any kind: columns, search, filters, order, CSV.

export interface TableColumn<T> {
  key: string;
  title: string;
  /** The text of the cell; "" for none. */
  text: (item: T, now: number) => string;
  order: (item: T) => string | number;
  /** Why there is no value, where `text` is "": shown as a dash with this title. Without it, an empty cell means none. */
  absence?: (item: T) => string;
  /** The title of the cell. */
  hint?: (item: T) => string;
  /** The value in CSV, where it differs from the text. */
  exact?: (item: T) => string;
  isShown: boolean;
  isNumber?: boolean;
  /** Values that differ in each row or change all the time: no filter is offered. */
  isUnique?: boolean;
  width: number;
}

export interface Filter {
  key: string;
  value: string;
}

export interface Sort {
  key: string;
  isDescending: boolean;
}

export interface Selection {
  search: string;
  filters: Filter[];
  sort: Sort;
}

// Where a spreadsheet would begin a formula: at the start of a cell, and after a semicolon, which ends a cell where lists are separated
// by semicolons (elsewhere a quoted cell continues).
const FORMULAS = /(?:^|(?<=[;\t\r\n]))(?=[=+\-@＝＋－＠])|^(?=[\t\r\n])/g;
const MOST_ROWS = 20_000; // as Run:ai's limit

export function columnOf<T>(columns: TableColumn<T>[], key: string): TableColumn<T> {
  return columns.find((column) => column.key === key) ?? (columns[0] as TableColumn<T>);
}

/** The items that match the search and all filters, sorted. Several values of one column are alternatives. */
export function selectItems<T>(all: Iterable<T>, columns: TableColumn<T>[], { search, filters, sort }: Selection, textOf: (item: T) => string, idOf: (item: T) => string): T[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const byColumn = new Map<string, Set<string>>();
  for (const filter of filters) byColumn.set(filter.key, (byColumn.get(filter.key) ?? new Set()).add(filter.value));
  const wanted = [...byColumn].map(([key, values]) => [columnOf(columns, key), values] as const);
  const kept: T[] = [];
  for (const item of all) {
    if (wanted.some(([column, values]) => !values.has(column.text(item, 0)))) continue;
    if (words.length) {
      const text = textOf(item).toLowerCase();
      if (!words.every((word) => text.includes(word))) continue;
    }
    kept.push(item);
  }
  const { order } = columnOf(columns, sort.key);
  const sign = sort.isDescending ? -1 : 1;
  const keyed = kept.map((item) => [order(item), item] as const);
  keyed.sort(([a, itemA], [b, itemB]) => (a < b ? -sign : a > b ? sign : idOf(itemA) < idOf(itemB) ? -1 : 1));
  return keyed.map(([, item]) => item);
}

/** The values of one column that a filter offers. */
export function valuesOf<T>(all: Iterable<T>, column: TableColumn<T>): string[] {
  return [...new Set([...all].map((item) => column.text(item, 0)))].sort(new Intl.Collator("en", { numeric: true }).compare);
}

/** A cell for CSV; one that a spreadsheet would compute is marked as text. */
export function toCsv<T>(items: T[], columns: TableColumn<T>[], now: number): string {
  const cell = (text: string): string => `"${text.replace(FORMULAS, "'").replaceAll('"', '""')}"`;
  const lines = items.slice(0, MOST_ROWS).map((item) => columns.map((column) => cell(column.exact?.(item) ?? column.text(item, now))).join(","));
  return [columns.map((column) => cell(column.title)).join(","), ...lines].join("\r\n") + "\r\n";
}

/** Give the browser a file to save: `NAME_2026-01-02T03-04-05.csv`. */
export function saveCsv(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = `${name}_${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.csv`;
  link.click();
  URL.revokeObjectURL(link.href);
}

/** A list with its next page appended. An item that moved between the pages meanwhile is kept once, in its newer state. */
export function joined<T>(before: T[], next: T[], idOf: (item: T) => string): T[] {
  const found = new Map(next.map((item) => [idOf(item), item]));
  return [...before.filter((item) => !found.has(idOf(item))), ...next];
}
