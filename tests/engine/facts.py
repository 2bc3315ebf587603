"""What the demos talk about: a harbour museum that does not exist, so nobody has learnt it by heart.

Small models answer well from pairs of questions and answers in full sentences, ended by an instruction
and two examples; from prose they make things up. Key words say whether an answer is right.
"""

FACTS = [
    ("What is the name of the museum?", "The museum is called the Alder Bay Harbour Museum."),
    ("Where is the museum?", "The museum is in the old customs house on Quay Street."),
    ("When was the museum founded?", "The museum was founded in 1923."),
    ("Who founded the museum?", "The museum was founded by Captain Edith Marlow."),
    ("Who is the director of the museum?", "The director of the museum is Jonas Petersen."),
    ("When does the museum open?", "The museum opens at nine in the morning."),
    ("When does the museum close?", "The museum closes at five in the afternoon."),
    ("On which day is the museum closed?", "The museum is closed on Mondays."),
    ("How much is a ticket for adults?", "A ticket for adults costs twelve crowns."),
    ("How much is a ticket for children?", "A ticket for children costs four crowns."),
    ("How many ships does the museum own?", "The museum owns seven ships."),
    ("What is the oldest ship of the museum?", "The oldest ship is the Silver Heron."),
    ("When was the Silver Heron built?", "The Silver Heron was built in 1847."),
    ("What did the Silver Heron carry?", "The Silver Heron carried tea and spices."),
    ("What is the largest ship of the museum?", "The largest ship is the steamer Gudrun."),
    ("How long is the steamer Gudrun?", "The steamer Gudrun is eighty metres long."),
    ("What is in the cellar?", "In the cellar there is a collection of ship bells."),
    ("How many bells are in the collection?", "There are forty bells in the collection."),
    ("What is on the first floor?", "On the first floor there is a hall of maps."),
    ("What is the oldest map?", "The oldest map shows the coast of Norway."),
    ("Who drew the oldest map?", "The oldest map was drawn by Willem Janszoon."),
    ("What is on the roof?", "On the roof there is a small observatory."),
    ("How high is the lighthouse?", "The lighthouse is thirty-one metres high."),
    ("What colour is the lighthouse?", "The lighthouse is painted red and white."),
    ("Who keeps the lighthouse?", "The lighthouse is kept by Martha Quill."),
    ("What is the name of the museum's cat?", "The museum's cat is called Barnacle."),
    ("What does the cat like to eat?", "The cat likes to eat herring."),
    ("Where does the cat sleep?", "The cat sleeps in a coil of rope."),
    ("What does the cafe serve?", "The cafe serves fish soup and apple cake."),
    ("Who is the cook of the cafe?", "The cook of the cafe is Rosa Lind."),
    ("What does the shop sell?", "The shop sells postcards and model ships."),
    ("How do I get to the museum?", "Take tram number six to the museum."),
    ("Where can I park my car?", "You can park your car behind the fish market."),
    ("Where can I leave my dog?", "You can leave your dog with the porter."),
    ("When is the harbour festival?", "The harbour festival is in the second week of June."),
    ("What happens at the festival?", "At the festival there is a race of rowing boats."),
    ("Who won the last race?", "The last race was won by the fire brigade."),
    ("What is the prize of the race?", "The prize of the race is a golden oar."),
    ("How long does a tour take?", "A tour of the museum takes ninety minutes."),
    ("In which languages are there tours?", "There are tours in English, Danish and Polish."),
]
EXAMPLES = [
    ("What does a ticket for children cost?", "A ticket for children costs four crowns."),
    ("Where is the hall of maps?", "The hall of maps is on the first floor."),
]
# (question, a word that a right answer has)
QUESTIONS = [
    ("Who is the director of the museum?", "Petersen"),
    ("When was the Silver Heron built?", "1847"),
    ("What is the name of the museum's cat?", "Barnacle"),
    ("What does the cafe serve?", "soup"),
    ("How high is the lighthouse?", "thirty-one"),
    ("What is the prize of the race?", "oar"),
    ("Who keeps the lighthouse?", "Quill"),
    ("On which day is the museum closed?", "Monday"),
    ("Where does the cat sleep?", "rope"),
]


def system_text(introduction="You are the guide of a museum. You know these answers."):
    pairs = "\n".join(f"Q: {question}\nA: {answer}" for question, answer in FACTS)
    return f"{introduction}\n{pairs}\nAnswer in one short sentence."


def messages(question=None):
    """The shared beginning, and perhaps a question, as turns of a chat."""
    turns = [{"role": "system", "content": system_text()}]
    for asked, answer in EXAMPLES:
        turns += [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
    return turns + ([{"role": "user", "content": question}] if question else [])
