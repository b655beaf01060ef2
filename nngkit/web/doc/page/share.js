// The button that copies a link to this page, with key and document in its fragment.
//
//     sharing({ button, row, field, link: () => "http://..." });   // `row` shows it in `field` if it cannot be copied

const SAID = 2000; // ms for which the button shows "Copied"

export function sharing({ button, row, field, link }) {
  const label = button.textContent;
  let timer = null;
  button.addEventListener("click", async () => {
    clearTimeout(timer);
    try {
      await navigator.clipboard.writeText(link()); // unavailable on other hosts without TLS
      row.hidden = true;
      button.textContent = "Copied";
      timer = setTimeout(() => { button.textContent = label; }, SAID);
    } catch {
      row.hidden = false;
      field.value = link();
      field.focus();
      field.select();
    }
  });
}
