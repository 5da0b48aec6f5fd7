"""Writes token ids that Hugging Face's tokenizers and OpenAI's tiktoken agree on, for the tokenizer tests.

    pip install tokenizers tiktoken
    python3 make_tokens.py GPT2      GPT2: the directory with GPT-2's encoder.json and vocab.bpe

Rewrites two committed files in the directory of this script. The bytes are always the same; they were made with
tokenizers 0.23.3 and tiktoken 0.14.0.

bpe.json: a tokenizer.json from Hugging Face's own trainer, on ../../data/dummy.txt and the text MULTILINGUAL.
tokens.json:
  multilingual  that text
  merges        the first 700 merges (all if there are fewer) that the trainer learns from "dummy" alone, and from
                "multilingual" alone: pairs of ids
  classes       ranges of characters: [first code point, class]; a range ends where the next one begins. Classes: "L"
                letter, "N" number, "S" white space, "O" other; inferred from how a character is split into pieces
  saved         ids of the text MULTILINGUAL under the tokenizer.json files that prepare_data made from this text:
                saved_char.json, saved_word.json, saved_bpe.json (--vocab-size 400)
  texts         "text", its ids under bpe.json ("bpe") and under GPT-2's tokenizer ("gpt2")
"""

import argparse
import json
from pathlib import Path

import tiktoken
from tiktoken.load import data_gym_to_mergeable_bpe_ranks
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

HERE = Path(__file__).resolve().parent
END_OF_TEXT = "<|endoftext|>"
BYTES = 256
VOCAB_SIZE = 1000  # without the end-of-text token
MERGES = 700
MULTILINGUAL_REPEATS = 20  # in the training text, so that not all merges come from the stories of dummy.txt
# The pattern of tiktoken's own encoding gpt2, which is not used because tiktoken would download its vocabulary.
GPT2_PATTERN = (
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
)

MULTILINGUAL = """\
The lamp in the harbour is green tonight, and the boats come home before the rain. It's late; they'll sleep.
Die kleine Tür quietscht, wenn der Wind über die Dächer zieht. Größe und Maß, Äpfel und Öl, süße Grüße.
Le garçon a mangé une crêpe près de la fenêtre ; l'été dernier, il préférait déjà les œufs à la coque.
El pingüino soñó con una montaña pequeña. ¿Dónde está el niño? ¡Mañana volverá con su compañero!
A raposa não dormiu; o avô contou histórias até a manhã, e ninguém quis ir para a cama.
Żółta łódź płynie przez jezioro, a źrebię śpi pod wiśnią. Ćma krąży wokół świecy.
Příliš dlouhý vlak projel údolím. Kočka leží na střeše a čeká, až přestane pršet.
Küçük çocuk ılık sütünü içti, İzmir'den gelen gemiyi bekledi. Şimdi ağaçların altında yağmur var.
Con mèo nhỏ ngủ trên mái nhà; buổi sáng trời mưa, buổi chiều trời nắng. Người bạn ấy đã về rồi.
Маленький ёжик нёс яблоко через лес, и каждый вечер он считал звёзды. Ёлка стоит у реки.
Їжак приніс ґудзик бабусі, а вона зварила борщ. Щастя любить тишу.
Η μικρή γάτα κοιμάται στον ήλιο, και η θάλασσα είναι ήσυχη. Πού πήγε το καράβι;
הילדה שתלה עץ ליד הבית, ובכל בוקר היא משקה אותו. שָׁלוֹם לַיַּלְדָּה.
زرعت البنت شجرة قرب البيت، وفي كل صباح تسقيها بالماء. مُحَمَّدٌ يَكْتُبُ رِسَالَةً. ٠١٢٣٤٥٦٧٨٩
دختر کوچک کنار رودخانه نشست و کتاب می‌خواند؛ هوا خنک بود. ۰۱۲۳۴۵۶۷۸۹
छोटी लड़की नदी के किनारे बैठी थी और एक किताब पढ़ रही थी। आज मौसम अच्छा है। ०१२३४५६७८९
ছোট্ট মেয়েটি নদীর ধারে বসে গান গাইছিল। আকাশে মেঘ জমেছে। ০১২৩৪৫৬৭৮৯
சிறுமி ஆற்றங்கரையில் அமர்ந்து பாடினாள். மழை மெதுவாகப் பெய்தது.
చిన్న పిల్ల చెట్టు కింద కూర్చుంది. గాలి చల్లగా వీస్తోంది.
เด็กหญิงนั่งริมแม่น้ำแล้วร้องเพลง วันนี้อากาศดีมาก ๐๑๒๓๔๕๖๗๘๙
ကလေးမလေးသည် မြစ်ကမ်းမှာ ထိုင်နေသည်။
პატარა გოგონა მდინარესთან ზის და წიგნს კითხულობს.
Փոքրիկ աղջիկը նստել է գետի ափին և երգում է։
ትንሿ ልጅ ወንዝ ዳር ተቀምጣ ትዘፍናለች።
小女孩坐在河边唱歌，太阳慢慢落下山去。今天的天气很好，明天可能会下雨。一二三四五。
小さな女の子は川のそばに座って、歌を歌っていた。カタカナとひらがな、そして漢字。ﾊﾝｶｸ。
작은 소녀가 강가에 앉아 노래를 불렀다. 오늘은 날씨가 참 좋다.
👩‍👩‍👧‍👦 went to the 🏖️ with 👨🏽‍🚀 and a 🐈‍⬛; 🇫🇷🇯🇵 flags, 👍🏿 thumbs, ❤️‍🔥 hearts, 1️⃣2️⃣3️⃣ keys. 😀😀😀
∀x ∈ ℝ: ⌈x⌉ = −⌊−x⌋, ½ + ⅓ = ⅚, x² + y³ ≤ ∞ — “quoted” ‘text’… Ⅷ ⅻ ①②③ €5 £7 ¥900
def area(width, height):
    if width < 0 or height < 0:
        raise ValueError("negative")
    return width * height
for (std::size_t i = 0; i < names.size(); ++i) {
\tif (names[i].empty()) continue;
\tstd::cout << names[i] << "\\n";
}
SELECT name, COUNT(*) FROM boats WHERE length >= 12.5 GROUP BY name;  -- 2024-03-31T23:59:60Z 0xDEADBEEF 1e-9
"""

# Letters and numbers that Unicode 15 and 16 added, by block: Kawi, Nag Mundari, Garay, Todhri, Sunuwar, Gurung
# Khema, Kirat Rai, Ol Onal, Tulu-Tigalari, CJK extensions H and I, Latin.
NEW_LETTERS = (
    "\U00011f04\U00011f05\U00011f50\U00011f51 \U0001e4d0\U0001e4d1\U0001e4f0 \U00010d50\U00010d70\U00010d40 "
    "\U000105c0\U000105c1 \U00011bc0\U00011bf0 \U00016100\U00016130 \U00016d40\U00016d70 \U0001e5d0\U0001e5f1 "
    "\U00011380\U00011390 \U00031350\U000323af\U0002ebf0 \ua7cb\ua7cd\ua7da \u1c89\u1c8a"
)

TEXTS = [
    # White space: alone, repeated, at ends, before letters; and characters that resemble white space.
    "",
    " ",
    "  ",
    "\n",
    "\r\n",
    "\t",
    "   leading and trailing   ",
    "two  spaces   three    four     five",
    "a\n\nb\n\n\nc \n d\n \n e",
    "one\r\ntwo\r\n\r\nthree\r",
    "\tif (x)\n\t\treturn;\n\t \t mixed \t\n",
    "trailing newline\n",
    "trailing newlines\n\n\n",
    "x\u180ey \u180e z\u180e\u180e 1",
    "x\u0085y \u0085 z\u0085\u0085 1\u0085",
    "x\u00a0y \u00a0 z\u00a0\u00a0 1\u00a0",
    "x\u2028y \u2028 z\u2029\u2028 1\u2028",
    "x\u3000y \u3000 z\u3000\u3000 1\u3000",
    "\u1680\u2000\u2001\u2009\u200a \u202f\u205f\u3000a\u200b\u200c\u200d\u2060\ufeffb",
    "\u001c\u001d\u001e\u001f a\u001cb \u000b\u000cc\u000bd",
    # Contractions.
    "It's what we'll do: they're sure I've said he'd go, and I'm not; don't.",
    "IT'S WHAT WE'LL DO: THEY'RE SURE I'VE SAID HE'D GO, AND I'M NOT; DON'T.",
    "'s",
    "they'll",
    "THEY'RE",
    "x 's 't 're 've 'm 'll 'd 'x 'l 'r 'v",
    "rock ''n'' roll''s ''ll '''re 'tis 'sss 'llama 'veto",
    "it\u2019s what we\u2018ll say, they\u201bre \u02bcve o\uff07d",
    # Names of special tokens, which are ordinary text here.
    "<|endoftext|>",
    "a<|endoftext|>b <|endoftext|>\n<|endoftext|><|endoftext|>",
    "<|endoftext <|endoftext| <|ENDOFTEXT|> |endoftext|>",
    "[UNK] [PAD][EOS] [CLS] <unk> </s>",
    # Numbers.
    "0 1 12 123 1234 1234567890 3.14159 1,000,000 -7 2^10 0x1F 1e-9 12abc34",
    "٠١٢ ۳۴۵ ०१२ ০১২ ๐๑๒ １２３ ²³¹ ½¾ Ⅷ ⅻ ①② 一二三 𝟘𝟙𝟚 1²x",
    # Control characters, invisible characters, and code points without a character.
    "a\0b \0 \0\0c",
    "\ufeffwith a mark \ufeff in the middle",
    "\u0001\u0002\u001b[0m\u007f \u0080\u009f\u00ad\u200e\u202e\ufffd\ufffe\uffff",
    "\U0010ffff\U000e0001\U000f0000\ue000 a\U0010ffff",
    # Combining marks.
    "e\u0301a\u0300 \u0301 o\u0308\u0323 n\u0303\u0303\u0303 x\u20dd \u0915\u094d\u0937\u093f",
    "Z\u0351\u036b\u0343a\u0321\u0489l\u034f\u0315g\u0360o 1\u0307 !\u0338",
    NEW_LETTERS,
    # Scripts.
    "Die Brücke über den Fluß heißt „Alte Brücke“; Ærøskøbing, smørrebrød, ångström, İstanbul, ĳs.",
    "Вечером дождь шёл тихо, а утром — солнце. Чайник кипит!",
    "Ο ψαράς γύρισε αργά, ᾧ τέκνον. Ὀδυσσεύς",
    "الطقس جميل اليوم، أليس كذلك؟ لَا إِلٰهَ ـــ ﷺ",
    "הַחַלּוֹן פתוח, והרוח נכנסת. ״ציטוט״",
    "नदी में पानी ठंडा है। क्षत्रिय, ज्ञान, श्री",
    "อากาศเย็นสบาย น้ำใสมาก",
    "下雨了，我们回家吧。雨停了！",
    "窓を開けると、ｶｾﾞが入ってきた。〜ー々〆ヶ",
    "비가 그쳤다. 하늘이 맑다! \u1112\u1161\u11ab\u1100\u1173\u11af",
    "𝔐𝔞𝔱𝔥 𝒮𝒸𝓇𝒾𝓅𝓉 𐍈𐌰 𓀀𓁐 𒀀 ꦗꦮ ᚠᚢᚦ ᏣᎳᎩ ⲁⲃⲅ",
    # Emoji.
    "👩‍👩‍👧‍👦👨🏽‍🚀 🐈‍⬛🏳️‍🌈 🇩🇪🇧🇷 👍🏿👍 ❤️❤ 1️⃣#️⃣ ☺☺️ 🫠🫨🪿 😀 😀  😀",
    # Program code and markup.
    "import sys\n\n\ndef main(argv):\n    for i, a in enumerate(argv):\n        print(f\"{i}: {a!r}\")  # every one\n"
    "\n    return 0\n\n\nif __name__ == '__main__':\n    sys.exit(main(sys.argv))\n",
    "template <class T>\nvoid swap(T& a, T& b) noexcept {\n\tT c = std::move(a);\n\ta = std::move(b);\r\n"
    "\tb = std::move(c);  // done\n}\n#define MAX(a,b) ((a)>(b)?(a):(b))\n",
    '{"name": "x_y-z", "list": [1, 2.5, null], "path": "C:\\\\temp\\\\new", "url": "https://example.org/?q=a%20b&c#d"}',
    "<p class=\"a\">Tom &amp; Jerry</p><!-- --> $x_{i}^{2}$ \\frac{1}{2} @user #tag a@b.example ~/.bashrc",
    # Long pieces: words, and repeated characters with lengths around which an encoder may change its algorithm.
    "Donaudampfschifffahrtsgesellschaftskapitänsmützenfabrikantenvereinsvorsitzenderstellvertretung",
    "thestoryofthelittlemousewhorantothehillbecauseitwasacloudymorningandshehadheryellowkitewithher" * 3,
    "a" * 63 + " " + "a" * 64 + " " + "a" * 65,
    "A" * 300,
    " " * 300 + "x",
    "\n" * 150,
    "=" * 128 + " " + "-" * 129,
    "é" * 100 + "ééé" + "é1" * 20,
    "的" * 90,
    "😀" * 70,
    "9" * 257,
    "ab" * 120 + "ba" * 30,
]  # fmt: skip


def untrained() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train(texts: list[str], vocab_size: int) -> Tokenizer:
    """Learns from each text as a whole. If it were read from a file, it would be cut into lines, with other pieces."""
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[],
        show_progress=False,
    )
    tokenizer = untrained()
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def learned_merges(text: str) -> list[tuple[int, int]]:
    """The first MERGES merges; fewer if no other pair occurs twice."""
    tokenizer = train([text], BYTES + MERGES)
    model, vocab = json.loads(tokenizer.to_str())["model"], tokenizer.get_vocab()
    for number, (left, right) in enumerate(model["merges"]):
        assert vocab[left + right] == BYTES + number
    return [(vocab[left], vocab[right]) for left, right in model["merges"]]


def byte_of_stand_in() -> dict[str, int]:
    """The inverse of GPT-2's bytes_to_unicode()."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(BYTES) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {
        chr(0x100 + i): byte for i, byte in enumerate(others)
    }


def encoding_with(name: str, ranks: dict[bytes, int]) -> tiktoken.Encoding:
    return tiktoken.Encoding(
        name, pat_str=GPT2_PATTERN, mergeable_ranks=ranks, special_tokens={END_OF_TEXT: len(ranks)}
    )


def own_tokenizer() -> tuple[Tokenizer, Tokenizer, tiktoken.Encoding]:
    """Three versions of a tokenizer: the one to save, one without the special token, and one for tiktoken."""
    dummy = (HERE / "../../data/dummy.txt").read_bytes().decode()
    saved = train([dummy] + [MULTILINGUAL] * MULTILINGUAL_REPEATS, VOCAB_SIZE)
    plain = Tokenizer.from_str(saved.to_str())
    assert saved.add_special_tokens([END_OF_TEXT]) == 1
    assert saved.token_to_id(END_OF_TEXT) == VOCAB_SIZE
    stand_ins = byte_of_stand_in()
    vocab = plain.get_vocab()
    assert [vocab[c] for c in stand_ins] == list(range(BYTES)), "bytes are not first"
    ranks = {bytes(stand_ins[c] for c in token): id for token, id in vocab.items()}
    return saved, plain, encoding_with("bpe", ranks)


def gpt2_tokenizers(directory: Path) -> tuple[Tokenizer, tiktoken.Encoding]:
    vocabulary, merges = str(directory / "encoder.json"), str(directory / "vocab.bpe")
    plain = untrained()
    plain.model = models.BPE.from_file(vocabulary, merges)
    ranks = data_gym_to_mergeable_bpe_ranks(vocab_bpe_file=merges, encoder_json_file=vocabulary)
    return plain, encoding_with("gpt2", ranks)


def agreed_ids(text: str, plain: Tokenizer, encoding: tiktoken.Encoding) -> list[int]:
    """Ids of a text; special tokens are not parsed."""
    ids = plain.encode(text, add_special_tokens=False).ids
    assert ids == encoding.encode_ordinary(text), f"{encoding.name}: {text!r}"
    assert plain.decode(ids, skip_special_tokens=False) == encoding.decode(ids) == text
    return ids


def character_classes() -> list[tuple[int, str]]:
    """The class of a character. A letter continues a piece that begins with "x", a number one with "1", another character
    one with "!"."""
    prefixes = {"x": "L", "1": "N", "!": "O"}
    # In this vocabulary each prefix merges with any byte. So the number of tokens shows whether tiktoken splits
    # the text into one piece or two.
    ranks = {bytes([byte]): byte for byte in range(BYTES)}
    for prefix in prefixes:
        for byte in range(BYTES):
            ranks[prefix.encode() + bytes([byte])] = len(ranks)
    encoding = encoding_with("classes", ranks)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)

    def class_of(joined) -> str:
        return next((name for prefix, name in prefixes.items() if joined(prefix)), "S")

    runs: list[tuple[int, str]] = []
    for code in range(0x110000):
        if 0xD800 <= code < 0xE000:
            continue
        c = chr(code)
        in_tokenizers = class_of(lambda prefix: len(byte_level.pre_tokenize_str(prefix + c)) == 1)
        in_tiktoken = class_of(lambda prefix: len(encoding.encode_ordinary(prefix + c)) <= len(c.encode()))
        assert in_tokenizers == in_tiktoken, f"U+{code:04X}: {in_tokenizers}, {in_tiktoken}"
        if not runs or runs[-1][1] != in_tiktoken:
            runs.append((code, in_tiktoken))
    return runs


def saved_ids(kind: str) -> list[int]:
    """The ids of a text under a tokenizer file that StageGPT has written. Checks that they decode to the text."""
    tokenizer = Tokenizer.from_file(str(HERE / f"saved_{kind}.json"))
    ids = tokenizer.encode(MULTILINGUAL).ids
    assert tokenizer.decode(ids) == MULTILINGUAL, kind
    return ids


def dumped(value) -> str:
    return json.dumps(value, separators=(",", ":"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("gpt2", type=Path, help="directory with encoder.json and vocab.bpe")
    saved, own, own_encoding = own_tokenizer()
    gpt2, gpt2_encoding = gpt2_tokenizers(parser.parse_args().gpt2)
    texts = [
        dumped({
            "text": text,
            "bpe": agreed_ids(text, own, own_encoding),
            "gpt2": agreed_ids(text, gpt2, gpt2_encoding),
        })
        for text in TEXTS
    ]  # fmt: skip
    dummy = (HERE / "../../data/dummy.txt").read_bytes().decode()
    merges = [
        f"{dumped(name)}:{dumped(learned_merges(text))}"
        for name, text in (("dummy", dummy), ("multilingual", MULTILINGUAL))
    ]
    saved.save(str(HERE / "bpe.json"), pretty=False)
    (HERE / "tokens.json").write_text(
        '{"multilingual":' + dumped(MULTILINGUAL)
        + ',\n"merges":{\n' + ",\n".join(merges)
        + '\n},\n"classes":' + dumped(character_classes())
        + ',\n"saved":' + dumped({kind: saved_ids(kind) for kind in ("char", "word", "bpe")})
        + ',\n"texts":[\n' + ",\n".join(texts) + "\n]}\n",
        encoding="ascii",
    )  # fmt: skip


if __name__ == "__main__":
    main()
