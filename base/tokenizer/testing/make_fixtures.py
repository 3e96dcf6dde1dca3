"""Writes llama_like.model and prints what Google's sentencepiece wheel makes of some texts with it.

    pip install sentencepiece && python3 make_fixtures.py TEXT      # any English text of a few hundred kilobytes

The model is of the kind that Llama's tokenizer is: bpe, a space put in front, unknown characters as bytes.
"""

import io
import sys
from pathlib import Path

import sentencepiece

HERE = Path(__file__).parent
TEXTS = ["In the beginning God created the heaven and the earth.", "", " two  spaces ", "naïve café – 日本 🙂",
         "line one\nline two\n\n", "\x00\x7f"]

model = io.BytesIO()  # and lines, not files: the model then keeps no path of this machine
with open(sys.argv[1], encoding="utf-8") as text:
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line.rstrip("\n") for line in text), model_writer=model, model_type="bpe", vocab_size=400,
        byte_fallback=True, normalization_rule_name="identity", add_dummy_prefix=True, num_threads=1, minloglevel=2)
(HERE / "llama_like.model").write_bytes(model.getvalue())
processor = sentencepiece.SentencePieceProcessor(model_file=str(HERE / "llama_like.model"))
for text in TEXTS:
    print(repr(text), processor.encode(text))
