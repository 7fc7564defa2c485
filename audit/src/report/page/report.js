// Turns every story of a stand-alone report into the picture that can be explored.
for (const violation of JSON.parse(document.getElementById("violations").textContent)) {
  for (const place of document.querySelectorAll(".told")) {
    if (place.dataset.id === violation.id) showStory(place, violation);
  }
}
