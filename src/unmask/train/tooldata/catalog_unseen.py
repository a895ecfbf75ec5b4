"""Tools that training never sees: their names, arguments and most of their domains are new."""

from __future__ import annotations

from unmask.train.tooldata.records import ToolSpec, tool

TOOLS: tuple[ToolSpec, ...] = (
    tool(
        "schedule_vet",
        "pets",
        "-",
        "Arrange a visit at the veterinarian.",
        "pet_name:pet:- visit_day:date:-",
        """
        book a vet visit for {pet_name} on {visit_day}
        My pet {pet_name} must see the vet on {visit_day}
        I need a vet appointment for {pet_name} on {visit_day}
        On {visit_day}, get {pet_name} to the vet
        """,
        result="clinic=surname slot=time",
        reports="{pet_name} is booked at {slot}.",
    ),
    tool(
        "log_feeding",
        "pets",
        "-",
        "Note how much a pet ate.",
        "animal:pet:- grams_eaten:grams:-",
        """
        My pet {animal} ate {grams_eaten} grams, write that down
        log a feeding of {grams_eaten} grams for {animal}
        I fed {animal} {grams_eaten} grams of food
        record that {animal} had {grams_eaten} grams of kibble
        """,
        result="total_grams=int:100:800",
        reports="{animal} has eaten {total_grams} grams in total.",
    ),
    tool(
        "water_zone",
        "garden",
        "-",
        "Run the sprinklers in one zone.",
        "sprinkler_zone:zone:- run_minutes:minutes:-",
        """
        water the {sprinkler_zone} for {run_minutes}
        run the sprinklers on the {sprinkler_zone} for {run_minutes}
        The {sprinkler_zone} needs water for {run_minutes}
        For {run_minutes}, water the {sprinkler_zone}
        """,
        result="liters=int:20:200",
        reports="The {sprinkler_zone} gets {liters} liters of water.",
    ),
    tool(
        "plant_guide",
        "garden",
        "-",
        "Explain how to care for a plant.",
        "species:species:-",
        """
        How do I take care of {species}?
        tell me how to grow {species}
        How much light do {species} need?
        get care tips for {species}
        """,
        result="sunlight==full watering_days=int:2:14",
        reports="Water {species} every {watering_days} days.",
    ),
    tool(
        "reserve_book",
        "library",
        "-",
        "Hold a library book for pickup.",
        "book_title:book:- ?pickup_branch:branchlib:-",
        """
        reserve the book {book_title}[ at the {pickup_branch} branch]
        hold {book_title} for me[ at the {pickup_branch} library]
        I'd like to borrow {book_title}[ from the {pickup_branch} branch]
        Can the library keep {book_title} for me[ at the {pickup_branch} branch]?
        """,
        result="queue_position=int:1:9",
        reports="You are number {queue_position} in the queue.",
    ),
    tool(
        "renew_loans",
        "library",
        "-",
        "Extend loans on a library card.",
        "card_no:card:-",
        """
        renew everything on library card {card_no}
        extend my library loans, card {card_no}
        My library card is {card_no}, renew my loans
        I need more time for my library loans on card {card_no}
        """,
        result="renewed=int:1:7 due=date",
        reports="{renewed} loans are renewed until {due}.",
    ),
    tool(
        "find_charger",
        "car",
        "-",
        "Locate a charging point for electric cars.",
        "search_area:city:- ?plug:plug:-",
        """
        find a[ {plug}] charging station in {search_area}
        Where can I charge my car in {search_area}?[ I need {plug}.]
        I need a[ {plug}] charger for my electric car in {search_area}
        Any[ {plug}] charging points in {search_area}?
        """,
        result="street=street free_plugs=int:1:8",
        reports="There are {free_plugs} free plugs on {street}.",
    ),
    tool(
        "book_service",
        "car",
        "-",
        "Book a garage slot for a car.",
        "license_plate:plate:- garage_day:date:- ?drop_off:time:-",
        """
        book a car service for {license_plate} on {garage_day}[ at {drop_off}]
        My car {license_plate} needs an oil change on {garage_day}[ at {drop_off}]
        get {license_plate} into the garage on {garage_day}[ at {drop_off}]
        On {garage_day}[ at {drop_off}] I want {license_plate} serviced
        """,
        result="price_estimate=int:80:600",
        reports="The service will cost about {price_estimate}.",
    ),
    tool(
        "record_grade",
        "school",
        "-",
        "Enter a pupil's mark.",
        "pupil:fullname:- mark:mark:-",
        """
        give {pupil} a mark of {mark}
        My student {pupil} got {mark} points in the test, enter it
        enter {mark} as the grade for {pupil}
        record a grade of {mark} for {pupil}
        """,
        result="class_average=int:50:90",
        reports="The mark is entered, the class average is {class_average}.",
    ),
    tool(
        "create_quiz",
        "school",
        "-",
        "Generate quiz questions for pupils.",
        "lesson:lesson:- question_count:count:- ?difficulty:level:-",
        """
        make a[ {difficulty}] quiz on {lesson} with {question_count} questions
        I need {question_count}[ {difficulty}] quiz questions about {lesson}
        create {question_count} questions about {lesson}[ at {difficulty} level] for my class
        Write a quiz of {question_count} questions on {lesson}[, {difficulty} level]
        """,
        result="quiz_code=order_id",
        reports="Your quiz is ready under code {quiz_code}.",
    ),
    tool(
        "quote_parcel",
        "post",
        "-",
        "Price for mailing a parcel abroad.",
        "weight_kg:small_weight:- to_country:country:- ?shipping_speed:speed:-",
        """
        How much does it cost to mail {weight_kg} kg to {to_country}[ with {shipping_speed} shipping]?
        get a quote for a {weight_kg} kg parcel to {to_country}[, {shipping_speed} shipping]
        I'm posting a {weight_kg} kg package to {to_country}[ by {shipping_speed} mail], what's the price?
        Postage to {to_country} for {weight_kg} kg[, {shipping_speed}]
        """,
        result="postage=int:8:90",
        reports="The postage is {postage} dollars.",
    ),
    tool(
        "get_moon_phase",
        "astronomy",
        "-",
        "Moon phase on a night.",
        "night:date:-",
        """
        What phase is the moon in on {night}?
        Will there be a full moon on {night}?
        look up the moon phase for {night}
        How will the moon look on {night}?
        """,
        result="phase=moon",
        reports="The phase on {night} is {phase}.",
    ),
    tool(
        "get_space_station_pass",
        "astronomy",
        "-",
        "When the space station flies over.",
        "observer_city:city:-",
        """
        When does the space station fly over {observer_city}?
        tell me when I can see the ISS from {observer_city}
        When is the ISS visible in {observer_city}?
        get the next space station pass over {observer_city}
        """,
        result="visible_at=time",
        reports="It passes over {observer_city} at {visible_at}.",
    ),
    tool(
        "search_rentals",
        "housing",
        "-",
        "Look for apartments to rent.",
        "district:district:- bedrooms:bedrooms:- ?rent_cap:rent:-",
        """
        find a {bedrooms} bedroom apartment in {district}[ for under {rent_cap} a month]
        I want to rent {bedrooms} bedrooms in {district}[, at most {rent_cap} a month]
        show flats in {district} with {bedrooms} bedrooms[ below {rent_cap} a month]
        Any apartments in {district} with {bedrooms} bedrooms[ under {rent_cap} a month]?
        """,
        result="listings=int:1:40",
        reports="There are {listings} listings in {district}.",
    ),
    tool(
        "search_jobs",
        "careers",
        "-",
        "Look for open job positions.",
        "job_role:role:- region:city:- ?home_office:remote:-",
        """
        find[ {home_office}] {job_role} jobs in {region}
        I'm looking for work as a {job_role} in {region}
        Are there[ {home_office}] openings for a {job_role} in {region}?
        search for[ {home_office}] {job_role} positions in {region}
        """,
        result="openings=int:2:80 employer=company",
        reports="There are {openings} openings, one is at {employer}.",
    ),
    tool(
        "book_court",
        "sports_club",
        "-",
        "Reserve a court at the club.",
        "game:court:- play_date:date:- starts_at:time:-",
        """
        book a {game} court on {play_date} at {starts_at}
        I want to play {game} on {play_date} at {starts_at}, get me a court
        On {play_date} at {starts_at}, reserve a {game} court
        Is a {game} court free on {play_date} at {starts_at}? Book it
        """,
        result="court_number=int:1:9",
        reports="You have court {court_number} at {starts_at}.",
    ),
    tool(
        "query_table",
        "database",
        "-",
        "Read rows of a database table.",
        "table_name:table:- row_limit:lines:-",
        """
        show me {row_limit} rows of the {table_name} table
        select {row_limit} rows from {table_name}
        I need the first {row_limit} rows of table {table_name}
        Read {row_limit} rows out of the {table_name} table
        """,
        result="rows=int:10:400",
        reports="The query on {table_name} gave {rows} rows.",
    ),
)
