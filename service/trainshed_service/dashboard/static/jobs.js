// The list of jobs: selects all, says how many are selected, and leaves empty fields out of the address.

const list = () => [...document.querySelectorAll("#jobs input[name=job]")];

function tell() {
  const boxes = list(), chosen = boxes.filter((box) => box.checked).length;
  const button = document.querySelector("[data-bulk]"), all = document.querySelector("[data-all]");
  if (!button) return;
  button.disabled = chosen === 0;
  const said = chosen ? `${chosen} selected` : "";
  const status = document.querySelector("[data-selected]");
  if (status.textContent !== said) status.textContent = said;
  all.hidden = boxes.length === 0;
  all.checked = boxes.length > 0 && chosen === boxes.length;
  all.indeterminate = chosen > 0 && chosen < boxes.length;
}

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-all]")) for (const box of list()) box.checked = event.target.checked;
  tell();
});
document.addEventListener("trainshed:page", tell);
document.querySelector(".filters").addEventListener("formdata", (event) => {
  for (const name of new Set(event.formData.keys())) {
    const kept = event.formData.getAll(name).filter((value) => value !== "" && !(name === "sort" && value === "created"));
    event.formData.delete(name);
    for (const value of kept) event.formData.append(name, value);
  }
});
tell();
