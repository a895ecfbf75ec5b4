"""The words that values are drawn from. Plain literal data; "|" separates, `<name>` refers to another pool."""

from __future__ import annotations

PLAIN: dict[str, str] = {
    "city": "Paris|Berlin|Tokyo|London|Madrid|Rome|Oslo|Lisbon|Vienna|Prague|Dublin|Athens|Cairo|Mumbai|Delhi|Seoul|"
    "Bangkok|Sydney|Melbourne|Toronto|Montreal|Chicago|Boston|Seattle|Denver|Austin|Miami|New York|San Francisco|"
    "Los Angeles|Buenos Aires|Lima|Bogota|Nairobi|Lagos|Cape Town|Helsinki|Stockholm|Copenhagen|Amsterdam|Brussels|"
    "Zurich|Geneva|Milan|Naples|Warsaw|Krakow|Budapest|Istanbul|Osaka|Kyoto|Singapore|Hanoi|Manila|Jakarta|Auckland|"
    "Porto|Seville|Munich|Hamburg|Lyon|Nice|Glasgow|Leeds|Bristol|Tampa|Portland|Dallas|Reykjavik|Tallinn|Riga",
    "person": "Anna|Ben|Carla|David|Emma|Felix|Grace|Hugo|Ivy|Jack|Karen|Leo|Maria|Noah|Olivia|Paul|Quinn|Rosa|Sam|"
    "Tina|Uma|Victor|Wendy|Xavier|Yara|Zoe|Priya|Omar|Lena|Kofi|Mei|Diego|Fatima|Jonas|Ingrid|Ravi|Nina|Oscar|Aisha|"
    "Marco|Chloe|Ethan|Hana|Luca|Elena|Pedro",
    "surname": "Smith|Garcia|Chen|Patel|Novak|Okafor|Larsen|Rossi|Weber|Dubois|Kim|Santos|Brown|Clark|Ahmed|Ivanov|"
    "Murphy|Lopez|Tanaka|Haddad|Berg|Moreau|Costa|Singh",
    "host": "example.com|mail.org|acme.io|northwind.net|school.edu|webpost.com|lab.dev|office.co|inbox.net|"
    "fastmail.com|"
    "post.ch|bluehill.com|company.com|gmail.com|mailbox.org|studio.art|citynet.fr|farm.nz|clinic.org|team.app",
    "known_event": "dentist appointment|team meeting|yoga class|budget review|piano lesson|book club|"
    "parent evening|project kickoff|board meeting|haircut|job interview|birthday party|doctor visit|design review|"
    "sales call|swim practice|choir rehearsal|staff training|car inspection|physio session|"
    "product demo|movie night|house viewing|vet appointment|quarterly planning|chess club|eye test",
    "known_task": "buy milk|call the plumber|water the plants|pay the rent|renew my passport|clean the garage|"
    "book the vet|"
    "take out the trash|finish the report|pick up the dry cleaning|charge the camera|update my resume|walk the dog|"
    "send the invoice|fix the bike|order printer ink|return the library books|back up my laptop|defrost the freezer|"
    "iron the shirts|print the tickets|sign the contract|feed the cat|mow the lawn|wrap the presents|check the tyres|"
    "vacuum the stairs|buy stamps|prepare the slides|change the bed sheets|empty the dishwasher|file my taxes",
    "known_message": "I'm running late|dinner is ready|the meeting is cancelled|I'll be there soon|happy birthday|"
    "I left the keys at home|the train is delayed|see you tomorrow|thanks for the help|I can't make it tonight|"
    "we are out of coffee|good luck with the exam|the package has arrived|I found your jacket|I'm at the station|"
    "the report is finished|let's have lunch on Friday|I miss you|the door code is 4471|I'll call you later|"
    "we won the game|bring an umbrella|the movie starts at eight|I got the job|save me a seat|the car is fixed|"
    "please feed the dog|I'm stuck in traffic|congratulations on the baby|the room is booked",
    "known_subject": "Invoice for May|Project update|Holiday plans|Meeting notes|Welcome aboard|Contract draft|"
    "Sick leave|Weekly report|New office address|Thank you|Budget proposal|Job application|Lunch menu|Server outage|"
    "Team photo|Travel receipts|Feedback on the draft|Party invitation|Price list|Training schedule|Lost badge|"
    "Exam results|Delivery delay|Parking permit",
    "known_song": "Yesterday|Bohemian Rhapsody|Imagine|Hey Jude|Halo|Thriller|Wonderwall|Hello|Dancing Queen|"
    "Smooth Operator|"
    "Take Five|Africa|Rolling in the Deep|Billie Jean|Let It Be|Clocks|Yellow|Creep|Purple Rain|Superstition|"
    "Hotel California|Stairway to Heaven|Levitating|Bad Guy|Fast Car|Dreams|Landslide|Respect|Waterloo|Zombie",
    "known_artist": "Adele|Coldplay|Queen|Miles Davis|Taylor Swift|Radiohead|Prince|Stevie Wonder|Daft Punk|"
    "Nina Simone|"
    "Beyonce|David Bowie|Fleetwood Mac|Billie Eilish|Bob Marley|The Beatles|Johnny Cash|Norah Jones|Pink Floyd|"
    "Ella Fitzgerald|Gorillaz|Bjork|Kendrick Lamar|Dua Lipa|Nirvana|Tina Turner",
    "mood": "Morning|Road Trip|Focus|Rainy Day|Party|Sunday|Late Night|Summer|Gym|Study|Winter|Campfire|Beach|Coding|"
    "Sunset|Kitchen|Happy|Sleepy|Retro|Monday|Dance|Quiet|Jazz|Travel",
    "mixword": "Mix|Vibes|Hits|Classics|Favourites|Tunes|Sessions|Grooves",
    "room": "kitchen|bedroom|living room|bathroom|hallway|garage|office|dining room|nursery|guest room|basement|attic|"
    "study|porch|laundry room|playroom|den|conservatory|library|utility room",
    "door": "front door|back door|garage door|side door|patio door|cellar door|garden gate|balcony door|shed door|"
    "main entrance|office door|kitchen door",
    "stem": "report|budget|photo|notes|invoice|draft|resume|slides|backup|summary|contract|recipe|diary|logo|survey|"
    "minutes|roadmap|schedule|inventory|thesis|poster|receipt|letter|song_list|readme|sales|plan|memo",
    "tag": "final|v2|old|2024|march|new|copy|team|q3|signed|edited|public|april|2023|short|client",
    "suffix": "pdf|docx|txt|png|csv|xlsx|md|jpg|json|zip|pptx|mp3",
    "folder": "Photos|Taxes|Projects|Recipes|Travel|Invoices|Music|Clients|Archive|School|Drafts|Holidays|Contracts|"
    "Designs|Receipts|Backups|Meetings|Research|Videos|Garden|Family|Templates|Press|Payroll",
    "topic": "climate change|electric cars|football|artificial intelligence|the elections|space travel|housing prices|"
    "renewable energy|tennis|the economy|vaccines|robotics|cybersecurity|fashion|wildlife|inflation|quantum computing|"
    "cycling|immigration|nuclear power|video games|coffee farming|ocean plastic|public transport|solar panels|chess",
    "company": "Apple|Tesla|Microsoft|Nvidia|Siemens|Toyota|Netflix|Sony|Nestle|Intel|Boeing|Adidas|Spotify|Airbus|"
    "Pfizer|Samsung|Volvo|Amazon|Oracle|Shell|Ikea|Nokia|Disney|Walmart|Novartis|Honda",
    "dish": "margherita pizza|chicken curry|pad thai|veggie burger|beef burrito|sushi platter|caesar salad|lasagna|"
    "fish tacos|ramen|falafel wrap|pepperoni pizza|tomato soup|lamb kebab|dumplings|mushroom risotto|fried rice|"
    "spring roll|club sandwich|butter chicken|miso soup|cheeseburger|greek salad|poke bowl|apple pie|tuna melt",
    "ingredient": "eggs|milk|chicken|rice|tomatoes|spinach|mushrooms|lentils|potatoes|cheese|onions|garlic|"
    "carrots|tofu|"
    "salmon|beans|pasta|zucchini|peppers|bacon|corn|broccoli|chickpeas|shrimp|avocado|lemon|basil|coconut milk|beef|"
    "cauliflower|leeks|pumpkin|feta|quinoa|kale|yogurt",
    "food": "a banana|an apple|a boiled egg|a slice of pizza|a bagel|a croissant|peanut butter|dark chocolate|"
    "an avocado|oatmeal|a cup of rice|a doughnut|greek yogurt|hummus|a latte|cheddar cheese|a mango|a pancake|granola|"
    "a baked potato|almonds|a muffin|tomato sauce|a protein bar",
    "restaurant": "Luigi's|The Blue Door|Sakura|Casa Verde|The Olive Tree|Bistro Nord|Golden Dragon|La Petite Table|"
    "Spice Route|The Copper Pot|El Faro|Maple and Rye|Trattoria Roma|The Lighthouse|Saffron|Old Mill|Green Fork|"
    "Harbour Grill|Chez Marie|Red Lantern|Noodle Bar|The Crown",
    "sport": "running|swimming|cycling class|yoga|rowing|boxing|pilates|hiking|weightlifting|climbing|dancing|skiing|"
    "basketball|jogging|spinning|stretching|skating|kayaking|aerobics|walking",
    "specialist": "dentist|cardiologist|dermatologist|pediatrician|neurologist|psychologist|optometrist|allergist|"
    "surgeon|physiotherapist|urologist|oncologist|radiologist|rheumatologist|psychiatrist|midwife|orthodontist",
    "medicine": "ibuprofen|aspirin|paracetamol|vitamin D|antibiotics|iron tablets|insulin|cough syrup|allergy pills|"
    "magnesium|fish oil|zinc|melatonin|eye drops|folic acid|omeprazole",
    "product": "wireless headphones|running shoes|desk lamp|coffee maker|yoga mat|phone case|water bottle|backpack|"
    "office chair|rain jacket|electric kettle|bluetooth speaker|winter gloves|board game|frying pan|camping tent|"
    "notebook|sunglasses|alarm clock|bike helmet|picture frame|hair dryer|toaster|keyboard|garden hose|umbrella|"
    "wall clock|travel pillow|screwdriver set|air fryer|tea towels|scented candle",
    "landmark": "the Eiffel Tower|Central Station|the airport|the British Museum|Times Square|the Louvre|Hyde Park|"
    "the opera house|city hall|the zoo|the main library|the stadium|Central Park|the harbour|the castle|"
    "the botanical garden|the university|Union Square|the cathedral|the beach|the old market|the science museum",
    "street": "Maple Street|Oak Avenue|Park Road|Hill Lane|Station Road|Church Street|Lake Drive|Elm Street|Mill Road|"
    "Rose Avenue|King Street|Bridge Lane|Sunset Boulevard|Garden Road|High Street|Cedar Court|Queens Road|"
    "Forest Lane|Market Square|Victoria Road|West Avenue|Pine Street|Harbour Road|School Lane|Valley Drive",
    "house": "12|7|48|103|25|9|61|230|17|84|5|36|150|72|19|41|3|11|22|28|33|57|64|78|90|118|142|205|311|460",
    "venue": "coffee shops|pharmacies|gas stations|bakeries|parking garages|bookstores|gyms|supermarkets|ATMs|"
    "bike shops|"
    "vegan restaurants|playgrounds|hotels|florists|laundromats|hospitals|ice cream shops|post offices|bars|banks|"
    "hardware stores|car washes",
    "language": "French|Spanish|German|Italian|Japanese|Korean|Portuguese|Dutch|Polish|Swedish|Turkish|Arabic|Hindi|"
    "Greek|Russian|Finnish|Czech|Danish|Hebrew|Thai|Vietnamese|Norwegian|Hungarian|Swahili",
    "phrase": "good morning|where is the train station|I would like a coffee|thank you very much|how much is this|"
    "I am lost|the bill, please|see you later|my name is Alex|I need a doctor|what time is it|I love this city|"
    "where is the bathroom|do you speak English|have a nice day|I am vegetarian|call the police|one ticket to Rome|"
    "the food was great|no sugar, thanks|happy new year|I don't understand|can you help me|it is too expensive",
    "word": "serendipity|ephemeral|gregarious|ubiquitous|candid|obsolete|resilient|ambiguous|nostalgia|frugal|diligent|"
    "eloquent|meticulous|arbitrary|paradox|tedious|benevolent|lucid|volatile|pragmatic|stoic|verbose|zealous|austere|"
    "brevity|cynical|dormant|elusive|fickle|gullible",
    "service": "auth-api|billing|search-index|web-frontend|payments|redis-cache|mailer|gateway|user-db|image-worker|"
    "notifier|checkout|metrics|job-queue|session-store|reports|cdn-proxy|inventory-api|scheduler|chat-backend",
    "repo": "webshop|mobile-app|docs-site|data-pipeline|infra|backend|design-system|ml-models|cli-tools|landing-page|"
    "game-engine|api-client|analytics|playground|firmware|dashboard",
    "bug": "login page crashes|typo in the footer|slow search results|missing dark mode|broken image links|"
    "timeout on upload|wrong tax rate|emails sent twice|menu overlaps the logo|memory leak in worker|"
    "export button does nothing|dates shown in UTC|password reset fails|duplicate orders|map does not load|"
    "app freezes on start|tests fail on Windows|currency symbol missing|video has no sound|cart empties on refresh",
    "branch": "main|develop|feature-login|hotfix-tax|release-2|dark-mode|fix-upload|new-header|refactor-db|beta|"
    "experiment-7|cleanup",
    "known_movie": "Inception|The Matrix|Casablanca|Spirited Away|Titanic|Parasite|Jaws|Amelie|Gladiator|Up|Alien|Dune|"
    "Top Gun|Moonlight|Paddington|Arrival|The Godfather|Frozen|La La Land|Psycho|Vertigo|Coco|Rocky|Whiplash",
    "author": "Jane Austen|Stephen King|Agatha Christie|Haruki Murakami|Toni Morrison|George Orwell|Ursula Le Guin|"
    "Leo Tolstoy|Virginia Woolf|Isaac Asimov|Terry Pratchett|Franz Kafka|Mary Shelley|Mark Twain|Isabel Allende|"
    "Margaret Atwood|Ernest Hemingway|Zadie Smith",
    "team": "Lakers|Arsenal|Real Madrid|Yankees|Liverpool|Bayern|Red Sox|Chelsea|Juventus|Warriors|Packers|Barcelona|"
    "Celtics|Ajax|Dodgers|Bulls|Everton|Benfica|Maple Leafs|Cowboys",
    "podcast": "Radiolab|Serial|Planet Money|Daily Digest|Hidden Brain|Freakonomics|Song Exploder|Science Friday|"
    "History Hour|Code Talk|Global News|Design Matters|This American Life|Startup Stories|Night Tales|Ocean Deep",
    "label": "urgent|frontend|security|docs|bug|backend|easy|design|testing|billing-team|mobile|performance",
    "station": "Paddington Station|Gare du Nord|Penn Station|Kings Cross|Atocha|Shinjuku|Termini|Grand Central|"
    "Victoria|"
    "Waterloo Station|Santa Justa|Keleti|Euston|Hauptbahnhof|Flinders Street|South Station",
    "adjective": "Golden|Silent|Broken|Electric|Lonely|Crimson|Hidden|Frozen|Wild|Velvet|Distant|Burning|Little|"
    "Endless|"
    "Paper|Silver|Restless|Midnight|Gentle|Hollow|Lucky|Purple|Secret|Sleeping|Summer|Winter",
    "noun": "River|Garden|Horizon|Shadow|Heart|Highway|Ocean|Mirror|Fire|Moon|Station|Dream|Tiger|Island|Letter|Sky|"
    "Window|Machine|Mountain|Bird|Kingdom|Dancer|Storm|Lantern|Harbor|Forest",
    "meal": "lunch|dinner|coffee|breakfast|a call|tennis|drinks|brunch|a walk|a workshop|an interview|golf",
    # of the unseen tools
    "pet": "Rex|Luna|Milo|Bella|Coco the cat|Biscuit|Shadow|Daisy|Pepper|Simba|Nala|Ziggy|Tofu the pug|Rocket|"
    "Willow|Max",
    "zone": "front lawn|rose bed|vegetable patch|back lawn|herb garden|greenhouse|orchard|flower pots|hedge|tomato bed",
    "species": "lavender|basil plants|orchids|monstera|sunflowers|blueberries|ferns|tulips|cactus|hydrangeas|mint|ivy",
    "book": "Moby Dick|Emma|Beloved|The Hobbit|Dracula|Middlemarch|Jane Eyre|Ulysses|Walden|Persuasion|1984|Kim's Game",
    "branchlib": "Riverside|Northgate|Hillcrest|Eastwood|Old Town|Lakeview|Westfield|Central|Parkside|Greenhill",
    "lesson": "fractions|photosynthesis|the French Revolution|volcanoes|grammar|algebra|the solar system|ancient Egypt|"
    "electricity|poetry|magnets|the water cycle",
    "country": "Canada|Brazil|Japan|Norway|Kenya|Mexico|Poland|Australia|Ireland|Chile|Egypt|India|Portugal|Iceland",
    "district": "Soho|Brooklyn|Montmartre|Kreuzberg|Chelsea Park|Gracia|Trastevere|Shibuya|Camden|Queens|Alfama|"
    "Ostbahn",
    "role": "nurse|data analyst|plumber|graphic designer|teacher|chef|truck driver|accountant|web developer|barista|"
    "electrician|translator|welder|pharmacist",
    "court": "tennis|squash|badminton|volleyball|padel|pickleball|handball|table tennis",
    "table": "customers|orders|shipments|refunds|employees|suppliers|sessions|vendors|payments_2024|leads",
}

COMPOSED: dict[str, str] = {
    "event": "<known_event>|<meal> with <person>|<meal> with <fullname>",
    "task": "<known_task>|<known_task>|call <fullname>|buy <product>|email <person>|buy <ingredient>|paint the <room>",
    "message": "<known_message>|<known_message>|I'm waiting at <landmark>|please call <person>|"
    "we need more <ingredient>|"
    "<person> says hello|I will be in <city> soon|the <product> arrived today",
    "subject": "<known_subject>|<known_subject>|Question from <person>|Visit to <city>|Notes for <person>",
    "song": "<known_song>|<adjective> <noun>",
    "movie": "<known_movie>|<known_movie>|The <adjective> <noun>",
    "artist": "<known_artist>|<known_artist>|<fullname>|The <noun> Band",
    "fullname": "<person> <surname>",
    "email": "<person>@<host>|<person>.<surname>@<host>|<surname>@<host>",
    "file": "<stem>.<suffix>|<stem>_<tag>.<suffix>|<stem>-<tag>.<suffix>",
    "playlist": "<mood> <mixword>",
    "address": "<house> <street>",
    "place": "<landmark>|<address>",
}

ENUMS: dict[str, dict[str, str]] = {
    "temp_unit": {"celsius": "Celsius|degrees Celsius", "fahrenheit": "Fahrenheit|degrees Fahrenheit"},
    "cabin": {"economy": "economy|coach", "business": "business class|business", "first": "first class"},
    "priority": {"low": "low|minor", "medium": "medium|normal", "high": "high|top"},
    "currency": {
        "USD": "dollars|US dollars|USD",
        "EUR": "euros|EUR",
        "GBP": "pounds|British pounds|GBP",
        "JPY": "yen|Japanese yen|JPY",
        "CHF": "Swiss francs|CHF",
    },
    "diet": {"vegan": "vegan", "vegetarian": "vegetarian|veggie", "keto": "keto", "gluten_free": "gluten-free"},
    "spend": {
        "food": "food|groceries|a meal",
        "transport": "transport|a taxi|a bus ticket",
        "rent": "rent",
        "fun": "fun|entertainment|a concert",
    },
    "file_kind": {"pdf": "PDF", "image": "image|photo", "video": "video", "spreadsheet": "spreadsheet|Excel"},
    "travel_mode": {
        "walking": "on foot|walking",
        "driving": "by car|driving",
        "cycling": "by bike|cycling",
        "transit": "by public transport|by bus",
    },
    "environment": {"staging": "staging", "production": "production|prod", "testing": "testing|the test environment"},
    "color": {"red": "red", "blue": "blue", "green": "green", "white": "white", "purple": "purple"},
    "plug": {"type2": "Type 2|type-2", "ccs": "CCS", "chademo": "CHAdeMO"},
    "level": {"beginner": "beginner|easy", "intermediate": "intermediate", "advanced": "advanced|hard"},
    "speed": {"standard": "standard|normal", "express": "express|fast"},
    "sky": {
        "sunny": "sunny",
        "cloudy": "cloudy",
        "rainy": "rainy",
        "windy": "windy",
        "foggy": "foggy",
        "clear": "clear",
    },
    "air": {"good": "good", "moderate": "moderate", "poor": "poor"},
    "state": {"delayed": "delayed", "on time": "on time", "boarding": "boarding", "cancelled": "cancelled"},
    "parcel": {"shipped": "shipped", "delivered": "delivered", "in transit": "in transit", "packed": "packed"},
    "moon": {"full moon": "", "new moon": "", "waxing crescent": "", "last quarter": ""},
}

FLAGS: dict[str, tuple[str, str]] = {
    "on_off": ("on", "off"),
    "lock": ("lock", "unlock"),
    "delivery": ("for delivery|delivered", "for pickup|to pick up"),
    "video": ("with video", "without video"),
    "repeat": ("every day|daily", "just once|only once"),
    "remote": ("remote", "on-site"),
}
