"""Writes llama_like.model and prints what Google's sentencepiece wheel makes of some texts with it.

    pip install sentencepiece && python3 make_fixtures.py TEXT      # any English text of a few hundred kilobytes

The model is of the kind that Llama's tokenizer is: bpe, a space put in front, unknown characters as bytes.
"""

import sys
from pathlib import Path

import sentencepiece

HERE = Path(__file__).parent
TEXTS = ["In the beginning God created the heaven and the earth.", "", " two  spaces ", "naïve café – 日本 🙂",
         "line one\nline two\n\n", "\x00\x7f"]

sentencepiece.SentencePieceTrainer.train(
    input=sys.argv[1], model_prefix=str(HERE / "llama_like"), model_type="bpe", vocab_size=400, byte_fallback=True,
    normalization_rule_name="identity", add_dummy_prefix=True, num_threads=1, minloglevel=2)
(HERE / "llama_like.vocab").unlink()
processor = sentencepiece.SentencePieceProcessor(model_file=str(HERE / "llama_like.model"))
for text in TEXTS:
    print(repr(text), processor.encode(text))
