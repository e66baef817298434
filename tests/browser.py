"""What must hold of the page and the pictures of `rungs report` in a browser.

usage: browser.py CHROMIUM FOLDER, where FOLDER has report.html and pictures/; see browser.sh.
"""

import sys
from pathlib import Path

from playwright.sync_api import expect, sync_playwright

CHROMIUM, FOLDER = sys.argv[1], Path(sys.argv[2]).resolve()
PAGE = (FOLDER / "report.html").as_uri()
PICTURES = sorted((FOLDER / "pictures").glob("*.svg"))
SHOTS = FOLDER / "shots"

# Texts that overlap each other or leave their picture, by their boxes, less the space above
# lowercase letters. A picture is scaled, so boxes are in the units of the screen.
OVERLAPS = """(pictures) => pictures.flatMap((picture) => {
  const frame = picture.getBoundingClientRect();
  const texts = [...picture.querySelectorAll('text')].map((text) => {
    const { left, right, top, bottom } = text.getBoundingClientRect();
    const inset = 0.22 * (bottom - top);
    return { words: text.textContent, left, right, top: top + inset, bottom: bottom - inset };
  });
  const outside = texts.filter((text) => text.left < frame.left || text.right > frame.right
    || text.top < frame.top || text.bottom > frame.bottom);
  const name = picture.getAttribute('aria-label');
  const found = outside.map((text) => `${name}: "${text.words}" leaves the picture`);
  texts.forEach((one, place) => texts.slice(place + 1).forEach((other) => {
    if (one.left < other.right && other.left < one.right
        && one.top < other.bottom && other.top < one.bottom) {
      found.push(`${name}: "${one.words}" and "${other.words}" overlap`);
    }
  }));
  return found;
})"""


def check(holds, what):
    if not holds:
        sys.exit(f"error: {what}")


class Tab:
    """A page that keeps what goes wrong in it, and what it asks for."""

    def __init__(self, browser, width=1200, scheme="light", **options):
        viewport = {"width": width, "height": 900}
        context = browser.new_context(
            viewport=viewport, color_scheme=scheme, offline=True, **options
        )
        self.page = context.new_page()
        self.wrong, self.requests = [], []
        self.page.on("console", lambda message: self.wrong.append(message.text))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self):
        self.page.goto(PAGE)
        self.page.locator("#table tbody tr").first.wait_for()
        return self.page

    def close(self):
        check(not self.wrong, f"the console says: {self.wrong}")
        asked = [url for url in self.requests if url != PAGE and not url.startswith(("data:", "blob:"))]
        check(not asked, f"the page asks for {asked}")
        self.page.context.close()


def column(page, name):
    names = page.locator("#table thead th").all_text_contents()
    place = next(at for at, text in enumerate(names, 1) if text.strip().startswith(name))
    return page.locator(f"#table tbody td:nth-child({place})").all_text_contents()


def count(page):
    return page.locator("#table tbody tr").count()


def use(browser):
    """Filters, sorts, opens and closes, with a pointer and with the keyboard."""
    tab = Tab(browser, accept_downloads=True)
    page = tab.open()
    everything = count(page)
    check(everything > 100, f"only {everything} results")
    check(page.locator("#count").text_content().startswith(f"{everything} of {everything}"), "count")

    shown = page.locator("svg.picture:visible")
    check(shown.count() >= 5, f"only {shown.count()} pictures at first")

    page.fill("#text", "persistent 4096x4096x4096")
    check(0 < count(page) < everything, "the text filters nothing")
    check(set(column(page, "M")) == {"4096"}, "the text does not filter by shape")
    page.fill("#text", "")
    page.select_option("#verdict", "slower")
    check(set(column(page, "Verdict")) == {"slower"}, "the verdict does not filter")
    runs = page.locator(".run:visible").count()
    check(0 < runs < page.locator(".run").count(), "runs are not filtered")
    page.click("text=Reset")
    # Not `wait_for_function`, whose polling the page's Content-Security-Policy refuses.
    expect(page.locator("#table tbody tr")).to_have_count(everything)

    def ratios():
        return [float(text) for text in column(page, "Ratio") if text]

    page.click("th button:text-is('Ratio')")
    check(ratios() == sorted(ratios(), reverse=True), "the first click does not sort down")
    header = page.locator("th[aria-sort]")
    check(header.get_attribute("aria-sort") == "descending", "aria-sort")
    page.focus("th button:text-is('Ratio')")
    page.keyboard.press("Enter")
    check(ratios() == sorted(ratios()), "the key does not sort up")
    check(header.get_attribute("aria-sort") == "ascending", "aria-sort after the key")
    check(column(page, "Ratio")[-1] == "", "what has no ratio is not last")

    page.focus("#table tbody tr:first-child button")
    page.keyboard.press("Enter")
    check(page.locator("#row dt:text-is('kernel')").is_visible(), "no dialog with all fields")
    page.keyboard.press("Escape")
    check(not page.locator("#row").is_visible(), "the dialog stays")

    closed = page.locator(".run:not([open])").first
    check(closed.locator("svg").count() == 0, "a closed run has pictures")
    closed.locator("summary").first.focus()
    label = closed.locator("summary code").text_content()
    page.keyboard.press("Enter")
    opened = page.locator(".run[open]", has_text=label).first
    opened.locator("svg.picture").first.wait_for()

    page.fill("#text", "naive")
    with page.expect_download() as download:
        page.click("#csv")
    lines = Path(download.value.path()).read_text().splitlines()
    check(len(lines) == count(page) + 1, "the CSV has other rows")
    tab.close()


def look(browser):
    """All pictures of all runs, light and dark, wide and narrow."""
    for width in (1200, 400):
        for scheme in ("light", "dark"):
            tab = Tab(browser, width, scheme)
            page = tab.open()
            wide = page.evaluate("document.documentElement.scrollWidth")
            check(wide <= width, f"the page is {wide} wide on {width}")
            page.screenshot(path=SHOTS / f"page-{scheme}-{width}.png", full_page=True)
            page.click("#open")
            page.locator(".run").last.locator("svg.picture").first.wait_for()
            pictures = page.locator("svg.picture")
            check(pictures.count() == len(PICTURES), f"{pictures.count()} of {len(PICTURES)} pictures")
            found = pictures.evaluate_all(OVERLAPS)
            check(not found, "\n".join(found[:20]))
            tab.close()


def print_it(browser):
    """On paper: light, without what is for a screen."""
    tab = Tab(browser, scheme="dark")
    page = tab.open()
    page.emulate_media(media="print", color_scheme="dark")
    check(not page.locator("#filters").is_visible(), "filters are printed")
    background = page.evaluate("getComputedStyle(document.querySelector('.picture .bg')).fill")
    check(background == "rgb(255, 255, 255)", f"a printed picture is {background}")
    tab.close()


def without_script(browser):
    """The first pictures, and a word about the rest."""
    tab = Tab(browser, java_script_enabled=False)
    tab.page.goto(PAGE)
    check(tab.page.locator("svg.picture:visible").count() >= 5, "no pictures without JavaScript")
    check(tab.page.locator("noscript p").is_visible(), "no word about JavaScript")
    tab.close()


def images(browser):
    """Pictures as images of another page, as in a README: light and dark."""
    shots = []
    page_file = FOLDER / "images.html"
    page_file.write_text("".join(f'<img src="{path.as_uri()}" width="400">' for path in PICTURES[:12]))
    for scheme in ("light", "dark"):
        tab = Tab(browser, scheme=scheme)
        tab.page.goto(page_file.as_uri())
        loaded = tab.page.evaluate("[...document.images].every((image) => image.naturalWidth > 0)")
        check(loaded, "a picture is no image")
        shots.append(tab.page.screenshot(path=SHOTS / f"images-{scheme}.png", full_page=True))
        tab.page.context.close()
    check(shots[0] != shots[1], "images are the same, light and dark")


with sync_playwright() as playwright:
    # In a container Chromium has no sandbox, and the page is our own.
    browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
    for part in (use, look, print_it, without_script, images):
        part(browser)
        print(f"{part.__name__}: fine", flush=True)
    browser.close()
